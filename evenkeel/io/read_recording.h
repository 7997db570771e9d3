// Reads files of routing, ours or another system's, into recordings. Every command and the Python package use
// these functions. The content of a file decides its format; docs/formats.md describes the formats and names
// their public sources.
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
  // The number of experts. For a trace it replaces the number in the file; if neither is given, it is the
  // largest id plus one. For counts it must agree with the file.
  std::optional<int> num_experts = {};
  // Which of the model's layers are in the file. If the file says it too, both must agree.
  std::optional<std::vector<int>> layers = {};
  // The model's config, in place of `layers`: the rows are its MoE layers, with or without its layers of
  // multi-token prediction.
  std::optional<ModelLayers> model = {};
  // The order of dimensions of an array without a name, such as "tokens,layers,k"
  // (docs/formats.md#arrays-without-a-name); "trace" and "counts" are short for the usual orders. For an
  // array with a known name it changes only the order, not the meaning.
  std::string axes = {};
  // For a table, in place of `axes`: the names of its columns, such as "layer,k...".
  std::string columns = {};
  // What to count in a trace for Recording::profile; with `nothing` the profile stays empty.
  enum class Count { nothing, loads, transitions };
  Count count = Count::transitions;
  // Whether to keep the steps that the file separates (docs/evaluate.md#steps). With `if_consistent`, a file
  // with contradictory steps is read as a whole, with a note.
  enum class Steps { added_up, if_consistent, kept };
  Steps steps = Steps::added_up;
  // For a trace whose steps are kept: steps are windows of this many tokens. An incomplete last window is
  // dropped unless it is the only one.
  std::optional<std::int64_t> step_tokens = {};
  bool keeps_steps() const { return steps != Steps::added_up; }
  // If true, the caller wants the loads of one step, so axes may also be "experts" or "ranks,experts".
  bool one_step = false;
};

// Returns `text` if it is a short form of axes ("counts" or "trace") or empty; else throws InvalidArgument
// about `option`.
std::string parse_as(const std::string& option, const std::string& text);

// `source` may also be a folder with TensorRT-LLM's recorded statistics or with Megatron's traces of all
// ranks. In a folder with SGLang's recordings or UltraEP's traces, the files are added up. Throws ParseError
// if `source` holds no routing or is damaged. Throws InvalidArgument if an option is missing or wrong. If
// `axes` is needed, the error lists the possible meanings. Cost: one pass over the file; memory of one batch
// for a trace of any length.
Recording read_recording(const ByteSource& source, const ReadOptions& options = {});

// Reads files that have the same layers and experts, to add them up or to make a robust placement. Throws
// InvalidArgument about `argument`, naming two files, if layers or experts differ, or if all loads add up to
// more than 2^63-1.
std::vector<Recording> read_recordings(const std::vector<std::string>& paths, const ReadOptions& options,
                                       const std::string& argument);

// Reads a file with its steps. The profile is the sum of the steps, without transitions. Throws
// InvalidArgument if the file has no steps, or step_tokens is given for counts.
Recording read_recording_of_steps(const std::string& path, ReadOptions options);

// Reads a file that may lack some of `options.layers`. The file must have layer numbers, or as many layers as
// `options.layers`.
Recording read_recording_of_some_layers(const std::string& path, const ReadOptions& options);

}  // namespace evenkeel
