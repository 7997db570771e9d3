// Readers of routing recorded by other systems, and of counts in JSON Lines; find_routing.h chooses among
// them. docs/formats.md describes the formats and names their public sources.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/found_routing.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel::internal {

// SGLang's expert distribution recorder (.pt) in any mode. `stat` and `stat_approx` count experts. `per_pass`
// and `per_token` record physical experts, which the map in the same file translates; per_token gives a
// trace. A single tensor is read as an array without a name. Several files, from ranks or dumps of the same
// model, are added up. A forward pass of all ranks is a step. Throws ParseError if files have different
// layers, or a rank has a pass twice.
FoundRouting find_sglang_recording(const std::vector<ByteSource>& files, const ReadOptions& options);

// Megatron-LM's router traces: one file a rank, in JSON Lines, a line for each step and layer. They become
// one trace in memory. Layers of the same rank, step and micro-batch have the same tokens; ids are -1 in
// layers that a rank does not have. Layers of multi-token prediction are left out. A micro-batch of all ranks
// is a step.
FoundRouting find_megatron_trace(const std::vector<ByteSource>& ranks, std::optional<int> num_experts);

// Whether all arrays have names of the form ITERATION_LAYER, as in TensorRT-LLM's statistics.
bool is_trtllm_statistics(const ArrayFile& file);
// TensorRT-LLM's statistics, one file a rank, added up over ranks; an iteration is a step. `meta_info` may
// give the number of experts. Throws ParseError unless all iterations have all layers.
FoundRouting find_trtllm_statistics(const std::vector<ByteSource>& ranks, const ByteSource* meta_info);

// Whether the file is a chunk of an UltraEP load trace.
bool is_ultra_ep_chunk(const ArrayFile& file);
// Reads a single chunk, or all chunks in a folder. All runs and expert-parallel groups of a model are added
// up. A micro-batch of a group is a step. If steps are kept, those without all layers are left out, with a
// note. Throws ParseError if traces have different models, a chunk is missing, a record is repeated, or no
// step has all layers.
FoundRouting find_ultra_ep_chunk(const ArrayFile& chunk, const ReadOptions& options);
FoundRouting find_ultra_ep_traces(const std::string& folder, const std::vector<std::string>& chunks,
                                  const std::vector<std::string>& manifests, const ReadOptions& options);

// The types of vLLM's records in JSON Lines; a file may have both.
inline constexpr std::string_view vllm_mapping_type = "eplb_initial_mapping";  // a placement
inline constexpr std::string_view vllm_stats_type = "eplb_load_stats";
// Adds up the counts in all `eplb_load_stats` records; each record's own map translates its physical experts.
// A record is a step: vLLM writes one after each step with the loads of all ranks. Step numbers restart
// whenever vLLM rearranges experts. The records have only MoE layers, without layer numbers. Throws
// ParseError if there is no such record, counts and map differ in shape, or records have different models.
FoundRouting find_vllm_statistics(const ByteSource& source, const ReadOptions& options);

// Whether a file has several JSON objects, one a line, judged by its beginning.
bool is_json_lines(std::string_view beginning);
// Counts in JSON Lines, one record a line, as written by users' hooks.
//
//   {"layer": 3, "step": 1, "counts": [7, 0, 2, 5]}       a layer of a step
//   {"layer": 3, "expert": 0, "count": 7}                  an expert of a layer
//   {"step": 1, "logical_count": [[7, 0], [2, 5]]}         all layers of a step
//
// Records are added up over steps unless steps are kept. Throws ParseError if the keys are ambiguous: no key
// or several keys of counts, lists without a layer, or a layer twice without a step to distinguish the
// records.
FoundRouting find_count_lines(const ByteSource& source, const ReadOptions& options);

}  // namespace evenkeel::internal
