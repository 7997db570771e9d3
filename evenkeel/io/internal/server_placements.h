// The placements of four servers: rows of physical experts by layer, and what each file says beside them
// (docs/formats.md#placements-of-other-systems). placement_format.cpp makes placements of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

// The key of vLLM's and TensorRT-LLM's rows.
inline constexpr const char* assignments_key = "initial_global_assignments";

// What a file says.
struct ServerPlacement {
  std::vector<NamedRow> rows = {};
  LayerNumbers layers = {};  // of the rows
  std::optional<int> num_ranks = {};
  std::optional<int> num_experts = {};
  std::optional<int> num_slots = {};  // physical experts of each row
  std::optional<int> layer_updates_per_iter = {};
};

// What is written.
struct ServerRows {
  std::vector<PhysicalRow> rows;
  int num_experts = 0;
  int num_ranks = 0;
  std::vector<int> layers = {};  // of the rows, for a format that counts the model's layers
  int num_hidden_layers = 0;     // and how many of them there are
  int layer_updates_per_iter = 0;
};

// SGLang's map, which `--init-expert-location` loads: {"physical_to_logical_map": [hidden layers][physical
// experts]} in JSON, or in a dictionary of torch.save (.pt). Written with no other key, since SGLang passes
// every key on, and with the row for dense layers that SGLang itself would give them.
ServerPlacement read_sglang(const ByteSource& source);
std::string sglang_text(const ServerRows& placement);

// vLLM's expert map: one line of JSON, an `eplb_initial_mapping` record. MoE layers alone are counted. Throws
// ParseError where two records say unlike placements.
ServerPlacement read_vllm(const ByteSource& source);
std::string vllm_text(const ServerRows& placement);

// vLLM-Ascend's static expert map: JSON with the experts of each device in each MoE layer. Throws ParseError
// where layer_id, device_id or a count says other than the lists do, whose order is what vLLM-Ascend goes by.
// Ids that begin above 0 are the model's layer numbers.
ServerPlacement read_vllm_ascend(const ByteSource& source);
std::string vllm_ascend_text(const ServerRows& placement);

// TensorRT-LLM's load balancer in YAML (or JSON, which is YAML): the experts of every slot by the model's
// layer numbers. It is a file of its own, or stands somewhere in a larger file of options (trtllm_yaml.cpp).
ServerPlacement read_trtllm(const ByteSource& source);
std::string trtllm_text(const ServerRows& placement);
}  // namespace evenkeel::internal
