// The readers of routing that other systems record, and of counts in JSON lines, for the dispatcher
// (find_routing.h). The formats, and the public source each was read from: docs/formats.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/found_routing.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel::internal {

// SGLang's expert distribution recorder (.pt) in any mode: `stat` and `stat_approx` count experts; `per_pass`
// and `per_token` record physical experts, which are mapped by the map in the same file; per_token gives a
// trace. A tensor alone is an array without a name. Several files, of ranks or dumps of the same model, are
// added up. A forward pass is a step, of all ranks together. Throws ParseError: files of different layers, a
// pass that a rank has twice.
FoundRouting find_sglang_recording(const std::vector<ByteSource>& files, const ReadOptions& options);

// Megatron-LM's router traces, JSON lines of a step and layer each, one file a rank, as one trace that is
// held in memory. Tokens of the same rank, step and micro-batch are the same in all layers; a layer that a
// rank does not have is -1 there. Layers of multi-token prediction are left out. A micro-batch is a step, of
// all ranks.
FoundRouting find_megatron_trace(const std::vector<ByteSource>& ranks, std::optional<int> num_experts);

// Whether arrays are named as TensorRT-LLM names its statistics, ITERATION_LAYER.
bool is_trtllm_statistics(const ArrayFile& file);
// Its statistics, a file a rank, added up over ranks; an iteration is a step. `meta_info` may say how many
// experts there are. Throws ParseError unless all iterations have all layers.
FoundRouting find_trtllm_statistics(const std::vector<ByteSource>& ranks, const ByteSource* meta_info);

// Whether arrays are a chunk of a load trace of UltraEP.
bool is_ultra_ep_chunk(const ArrayFile& file);
// A chunk alone, or all of a folder: of the runs and expert-parallel groups of one model, added up. A
// micro-batch of a group is a step; one that lacks layers is left out where steps are kept, with a note.
// Throws ParseError: traces of different models, a chunk that is missing, a record twice, no step with all
// layers.
FoundRouting find_ultra_ep_chunk(const ArrayFile& chunk, const ReadOptions& options);
FoundRouting find_ultra_ep_traces(const std::string& folder, const std::vector<std::string>& chunks,
                                  const std::vector<std::string>& manifests, const ReadOptions& options);

// The types of vLLM's records in JSON lines; one file may have both.
inline constexpr std::string_view vllm_mapping_type = "eplb_initial_mapping";  // a placement
inline constexpr std::string_view vllm_stats_type = "eplb_load_stats";
// The counts of physical experts, added to the experts that the record's own map says they were, over all
// `eplb_load_stats` records. A record is a step: vLLM writes one after each, with the loads of all ranks, and
// its numbers begin anew whenever it rearranges experts. vLLM counts MoE layers alone, and does not say their
// numbers. Throws ParseError: no such record, counts and map of different shapes, records of different
// models.
FoundRouting find_vllm_statistics(const ByteSource& source, const ReadOptions& options);

// Whether a file has more than one JSON object, a line each. Only its beginning is looked at.
bool is_json_lines(std::string_view beginning);
// Counts in JSON lines, a record a line: what people's hooks write.
//
//   {"layer": 3, "step": 1, "counts": [7, 0, 2, 5]}       a layer of a step
//   {"layer": 3, "expert": 0, "count": 7}                  an expert of a layer
//   {"step": 1, "logical_count": [[7, 0], [2, 5]]}         all layers of a step
//
// Records are added up over steps, unless these are to be kept. Throws ParseError where their keys do not say
// what they are: no key of counts or several, lists whose layer nobody says, a layer twice without a step to
// tell them apart.
FoundRouting find_count_lines(const ByteSource& source, const ReadOptions& options);

}  // namespace evenkeel::internal
