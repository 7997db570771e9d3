// The one way from files of routing, ours or another system's, to recordings: what every command and the
// Python package start from. A file is known by its content; the formats, and the public source each was read
// from: docs/formats.md.
//
//   Recording recording = read_recording("expert_distribution_recorder_1763.pt");
//   recording.profile.loads(LayerId(0));
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/routing/recording.h"

namespace evenkeel {

struct ReadOptions {
  // Instead of what a trace says, where nobody does the largest id plus one. Counts say it, and must agree.
  std::optional<int> num_experts = {};
  // Which of the model's layers the file's are, where it does not say so itself; what it says must agree.
  std::optional<std::vector<int>> layers = {};
  // The same by the model's config: rows are its MoE layers, with or without those of multi-token prediction.
  std::optional<ModelLayers> model = {};
  // The order of the dimensions of an array that nobody named, such as "tokens,layers,k"
  // (docs/formats.md#arrays-without-a-name); "trace" and "counts" are short for the usual ones. An array with
  // a name may be in another order than is usual, and keeps its meaning.
  std::string axes = {};
  // Instead, of a table: the names of its columns, such as "layer,k...".
  std::string columns = {};
  // What is counted of a trace, for Recording::profile: with `nothing` that is empty.
  enum class Count { nothing, loads, transitions };
  Count count = Count::transitions;
  // Steps that the file tells apart are kept (docs/evaluate.md#steps); with `if_told` a file whose steps
  // contradict each other is read as a whole, with a note.
  enum class Steps { added_up, if_told, kept };
  Steps steps = Steps::added_up;
  // Of a trace, with steps, windows of so many tokens instead. A last window that is not full is left out
  // where there are others.
  std::optional<std::int64_t> step_tokens = {};
  bool keeps_steps() const { return steps != Steps::added_up; }
  // The loads of one step are wanted: axes may also be "experts" or "ranks,experts".
  bool one_step = false;
};

// Throws InvalidArgument unless `text`, of `option`, is "counts", "trace" or empty: short forms of axes.
std::string parse_as(const std::string& option, const std::string& text);

// `source` may also be a folder: TensorRT-LLM's recorded statistics, Megatron's traces of all ranks, or
// SGLang's recordings or UltraEP's traces, which are added up. Throws ParseError if it holds no routing, or
// is damaged; InvalidArgument if an option is missing or wrong, so where nobody says what the numbers are: it
// then lists what they may be. Cost: one walk through the file; memory of one batch for a trace of any
// length.
Recording read_recording(const ByteSource& source, const ReadOptions& options = {});

// Files of the same layers and experts, added up or all to be level. Throws InvalidArgument about `argument`,
// naming two files, where they are not, or where the loads of all are above 2^63-1 together.
std::vector<Recording> read_recordings(const std::vector<std::string>& paths, const ReadOptions& options,
                                       const std::string& argument);

// A file whose steps are wanted: its profile is what they add up to, without transitions. Throws
// InvalidArgument where it has no steps, or they are told twice.
Recording read_recording_of_steps(const std::string& path, ReadOptions options);

// A file of some of the layers that `options.layers` names; it says which, or has as many.
Recording read_recording_of_some_layers(const std::string& path, const ReadOptions& options);

}  // namespace evenkeel
