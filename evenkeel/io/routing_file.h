// Routing from any file that holds it, ours or another system's, known by content: what `place` and `profile`
// start from. The formats, and the public source each was read from: docs/formats.md.
//
//   RoutingProfile profile = read_routing("expert_distribution_recorder_1763.pt");
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/model_layers.h"
#include "evenkeel/plan/counts.h"
#include "evenkeel/routing/profile.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

struct RoutingOptions {
  // Instead of what a trace says, where nobody does the largest id plus one. Counts say it, and must agree.
  std::optional<int> num_experts = {};
  // Which of the model's layers the file's are, where it does not say so itself; what it says must agree.
  std::optional<std::vector<int>> layers = {};
  // The same by the model's config: rows are its MoE layers, with or without those of multi-token prediction.
  std::optional<ModelLayers> model = {};
  // Of an array that nobody named, in any container, whatever speaks for the other. A file that is known to
  // hold the other is refused.
  enum class Bare { ask, trace, counts };
  Bare bare = Bare::ask;
  // Transitions are not counted where they are not wanted.
  bool transitions = true;
  // Steps that the file tells apart are kept besides (steps_of()).
  bool keep_steps = false;
};

// "counts", "trace", or nothing, which asks. Throws InvalidArgument, which calls it `option`.
RoutingOptions::Bare parse_bare(const std::string& option, const std::string& text);

// The content of a file: a trace, where tokens were recorded one by one, else a profile. Only a profile in a
// file of ours has transitions.
struct RoutingFile {
  std::string what;    // "trace", "profile", "loads", "counts", "recording", "statistics"
  std::string format;  // "safetensors", "npz", "npy", "json", "csv", "sglang", "megatron", "trtllm", "vllm"
  std::unique_ptr<TraceReader> trace;
  std::optional<RoutingProfile> profile;
  // Counts of which rows without load were left out as dense layers: all rows, for whoever knows better.
  std::optional<RoutingProfile> all_rows = {};
  // Counts whose rows may be hidden layers or not: those without load, if there are several.
  std::vector<int> rows_without_load = {};
  // Notes for the user about what was read otherwise than the file has it, and why.
  std::vector<std::string> notes = {};
  // Of "loads": the step that they are of, by source rank where the file says it.
  std::optional<Counts> step = {};
  // With keep_steps, of counts by step, as they stand: [steps, rows, E].
  std::vector<std::int64_t> step_counts = {};
  int rows_of_step = 0;
  // Which of these rows the profile's layers are; all of them where this is empty.
  std::vector<int> kept_rows = {};
  // With keep_steps, of a trace that says its steps: the tokens of each.
  std::vector<std::vector<TokenRange>> step_tokens = {};

  // Which of the model's layers these are, where the file says it.
  const LayerNumbers& layers() const { return trace ? trace->info().layers : profile->layers(); }
  int num_layers() const { return trace ? trace->info().num_layers : profile->num_layers(); }
};

// `path` may also be a folder: TensorRT-LLM's recorded statistics, Megatron's traces of all ranks, or
// SGLang's recordings, which are added up. Throws ParseError if it holds no routing, or is damaged;
// InvalidArgument if an option is missing or wrong.
RoutingFile open_routing(const ByteSource& source, const RoutingOptions& options = {});

// The steps of a recording as profiles without transitions, if it was read with keep_steps and tells them
// apart (docs/evaluate.md#steps); of a trace, windows of `tokens_per_step` tokens instead, if that is given.
// A last window that is not full is left out where there are others.
std::vector<RoutingProfile> steps_of(RoutingFile& file, std::optional<std::int64_t> tokens_per_step);

// The routing of any such file as a profile; a trace is counted.
RoutingProfile read_routing(const std::string& path, const RoutingOptions& options = {});
// As above, from a file that is already open.
RoutingProfile profile_of(RoutingFile& file, const RoutingOptions& options = {});

}  // namespace evenkeel
