// Placement files of four servers: rows of physical experts by layer, and each format's other keys
// (docs/formats.md#placements-of-other-systems). placement_format.cpp converts them to placements.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

// The key of the rows in vLLM's and TensorRT-LLM's files.
inline constexpr const char* assignments_key = "initial_global_assignments";

// What is read from a file.
struct ServerPlacement {
  std::vector<NamedRow> rows = {};
  LayerNumbers layers = {};  // of the rows
  std::optional<int> num_ranks = {};
  std::optional<int> num_experts = {};
  std::optional<int> num_slots = {};  // physical experts of each row
  std::optional<int> layer_updates_per_iter = {};
};

// What is written to a file.
struct ServerRows {
  std::vector<PhysicalRow> rows;
  int num_experts = 0;
  int num_ranks = 0;
  std::vector<int> layers = {};  // numbers of the rows, for a format that counts the model's layers
  int num_hidden_layers = 0;     // of the model, for such a format
  int layer_updates_per_iter = 0;
};

// SGLang's map, which `--init-expert-location` loads: {"physical_to_logical_map": [hidden layers][physical
// experts]} in JSON, or in a dictionary of torch.save (.pt). It is written without other keys, since SGLang
// passes every key on. Dense layers get the row that SGLang itself would give them.
ServerPlacement read_sglang(const ByteSource& source);
std::string sglang_text(const ServerRows& placement);

// vLLM's expert map: one line of JSON, an `eplb_initial_mapping` record, with only the MoE layers. Throws
// ParseError if two records have different placements.
ServerPlacement read_vllm(const ByteSource& source);
std::string vllm_text(const ServerRows& placement);

// vLLM-Ascend's static expert map: JSON with the experts of each device in each MoE layer. vLLM-Ascend uses
// the order of the lists; throws ParseError if layer_id, device_id or a count does not agree with it. Layer
// ids that begin above 0 are the model's layer numbers.
ServerPlacement read_vllm_ascend(const ByteSource& source);
std::string vllm_ascend_text(const ServerRows& placement);

// TensorRT-LLM's load balancer in YAML (or JSON, which is YAML): the expert of every slot, by the model's
// layer numbers. It may be a separate file or part of a larger file of options (trtllm_yaml.cpp).
ServerPlacement read_trtllm(const ByteSource& source);
std::string trtllm_text(const ServerRows& placement);
}  // namespace evenkeel::internal
