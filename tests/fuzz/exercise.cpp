#include "tests/fuzz/exercise.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/cost_file.h"
#include "evenkeel/io/expert_map_file.h"
#include "evenkeel/io/internal/checkpoint/checkpoint_config.h"
#include "evenkeel/io/internal/checkpoint/moe_layers.h"
#include "evenkeel/io/internal/checkpoint/tensors.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/pickle.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/model_config.h"
#include "evenkeel/io/placement_file.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/read_recording.h"
#include "evenkeel/io/topology_file.h"
#include "evenkeel/io/trace_file.h"
#include "evenkeel/io/trained_layer.h"

namespace evenkeel::fuzz {

namespace {

// A zip member may be far longer than the file. Beyond this many elements, reading exercises nothing new.
constexpr std::int64_t most_elements = 1 << 18;

ByteSource source_of(std::span<const std::byte> bytes) {
  return {{bytes.begin(), bytes.end()}, "input"};
}

Outcome refused_by(const Error& error) {
  if (std::string_view(error.what()).size() > max_message_bytes)
    throw std::logic_error("a message of many bytes: " + std::string(error.what()).substr(0, 200));
  return Outcome::refused;
}

template <class Reading>
Outcome outcome_of(Reading reading) {
  try {
    reading();
    return Outcome::read;
  } catch (const ParseError& error) {
    return refused_by(error);
  } catch (const Unsupported& error) {
    return refused_by(error);
  }
}

void read_all_arrays(const ArrayFile& file) {
  for (const ArrayInfo& info : file.arrays()) {
    const auto reader = file.reader(info.name);
    const std::int64_t count = std::min(info.num_elements, most_elements);
    std::vector<float> floats(static_cast<std::size_t>(count));
    reader->read(0, std::span(floats));
    if (!is_integer(info.dtype)) continue;
    // Also reads backwards, where a compressed member is unpacked again from its start.
    std::vector<std::int64_t> integers(static_cast<std::size_t>(count - count / 2));
    reader->read(count / 2, std::span(integers));
    reader->read(0, std::span(integers).first(static_cast<std::size_t>(count / 2)));
  }
}

// Treats the file as a checkpoint of one family, plans to reverse the order of its experts, and reads the
// whole plan.
void plan_reversal(const internal::CheckpointTensors& checkpoint, const Family& family) {
  constexpr int experts = 8;
  const internal::CheckpointConfig model{
      .family = &family, .num_layers = 2, .num_experts = experts, .groups = {}};
  const auto layers = internal::find_moe_layers(checkpoint, model, "input");
  std::vector<ExpertId> order;
  for (int id = 0; id < experts; ++id) order.emplace_back(experts - 1 - id);
  internal::Renumbering renumbering(checkpoint);
  for (const internal::MoeLayer& layer : layers) renumbering.renumber(layer, order);
  std::int64_t bytes = 0;
  for (const internal::ByteRange& range : renumbering.ranges(0)) bytes += range.bytes;
  std::int64_t expected = checkpoint.files.front().data_begin;
  for (const internal::StoredTensor& tensor : checkpoint.tensors) expected += tensor.at.bytes();
  if (bytes != expected) throw std::logic_error("a file would change its size");
}

Outcome exercise_tensors(const ByteSource& source) {
  internal::CheckpointTensors checkpoint;
  const Outcome header = outcome_of([&] {
    auto read = internal::read_safetensors_header(source);
    internal::require_gapless(read, source);
    checkpoint.files.push_back({.name = "input", .data_begin = read.data_begin});
    for (auto& tensor : read.tensors) checkpoint.tensors.push_back({.at = std::move(tensor), .file = 0});
  });
  if (header == Outcome::refused) return header;
  for (const Family& family : known_families())
    if (family.tensors) outcome_of([&] { plan_reversal(checkpoint, family); });
  return header;
}

// A damaged number might make these sums overflow 63 bits.
void count_weights(const ModelDescription& model) {
  if (!model.weights.empty() && model.parameters() <= 0) throw std::logic_error("a model without weights");
}

Outcome exercise_safetensors(std::span<const std::byte> bytes) {
  return outcome_of([&] { read_all_arrays(*internal::open_safetensors(source_of(bytes))); });
}

Outcome exercise_npy(std::span<const std::byte> bytes) {
  return outcome_of([&] { read_all_arrays(*internal::open_npy(source_of(bytes))); });
}

Outcome exercise_npz(std::span<const std::byte> bytes) {
  return outcome_of([&] { read_all_arrays(*internal::open_npz(source_of(bytes))); });
}

Outcome exercise_json(std::span<const std::byte> bytes) {
  const auto source = source_of(bytes);
  const Outcome placement = outcome_of([&] { read_placement(source); });
  const Outcome profile = outcome_of([&] { read_profile(source); });
  const Outcome loads = outcome_of([&] {
    try {
      read_step_loads(source, {.num_ranks = 3, .layers = {0}});
    } catch (const InvalidArgument&) {
      // The file's counts may be from another number of ranks than 3.
    }
  });
  const bool read = placement == Outcome::read || profile == Outcome::read || loads == Outcome::read;
  return read ? Outcome::read : Outcome::refused;
}

Outcome exercise_trace(std::span<const std::byte> bytes) {
  return outcome_of([&] {
    // If the number of experts is given, a long member need not be read to its end to find that number.
    const bool stated = bytes.size() % 2 == 0;
    const auto trace =
        open_trace(source_of(bytes), stated ? TraceOptions{.num_experts = 64} : TraceOptions{});
    const TraceInfo& info = trace->info();
    const std::int64_t tokens = std::min(info.num_tokens, most_elements / info.assignments_per_token());
    for (TraceBatches batches(*trace, {0, tokens}, 3); batches.next();)
      if (info.has_weights) batches.weights();
    trace->read_layer(LayerId(info.num_layers - 1), {tokens / 2, tokens});
  });
}

Outcome exercise_checkpoint(std::span<const std::byte> bytes) {
  const auto source = source_of(bytes);
  const Outcome config = outcome_of([&] { internal::read_checkpoint_config(source); });
  const Outcome layers = outcome_of([&] { read_model_layers(source); });
  const Outcome model = outcome_of([&] { count_weights(read_model_description(source)); });
  const Outcome index = outcome_of([&] { internal::read_checkpoint_index(source); });
  const Outcome map = outcome_of([&] { read_expert_map(source); });
  const Outcome tensors = exercise_tensors(source);
  const bool read = config == Outcome::read || layers == Outcome::read || model == Outcome::read ||
                    index == Outcome::read || map == Outcome::read || tensors == Outcome::read;
  return read ? Outcome::read : Outcome::refused;
}

Outcome exercise_pickle(std::span<const std::byte> bytes) {
  return outcome_of([&] {
    constexpr std::array<std::string_view, 3> names = {"torch._utils _rebuild_tensor_v2", "torch LongStorage",
                                                       "collections OrderedDict"};
    const internal::Pickle pickle(bytes, names, "input", "data.pkl");
    pickle.kind_name(pickle.root());
    pickle.find(pickle.root(), "records");
  });
}

// A recording of another system may also be refused because an option is missing.
template <class Reading>
Outcome outcome_with_options(Reading reading) {
  return outcome_of([&] {
    try {
      reading();
    } catch (const InvalidArgument& error) {
      throw ParseError("input", "", error.what());
    }
  });
}

// The loads of the steps must add up to those of the recording.
void read_steps(const Recording& file) {
  const std::vector<RoutingProfile>& steps = file.steps;
  if (steps.empty() || file.is_trace()) return;
  RoutingProfile sum = steps.front();
  for (const RoutingProfile& step : std::span(steps).subspan(1)) sum.add(step);
  if (!std::ranges::equal(sum.loads(), file.profile.loads()))
    throw std::logic_error("steps do not add up to the recording");
}

Outcome exercise_recording(std::span<const std::byte> bytes) {
  // Does not count a long archive member to its end.
  using Count = ReadOptions::Count;
  const Outcome whole =
      outcome_with_options([&] { read_recording(source_of(bytes), {.count = Count::nothing}); });
  const Outcome by_step = outcome_with_options([&] {
    read_steps(
        read_recording(source_of(bytes), {.count = Count::nothing, .steps = ReadOptions::Steps::kept}));
  });
  return whole == Outcome::read ? whole : by_step;
}

Outcome exercise_foreign(std::span<const std::byte> bytes) {
  const Outcome routing = exercise_recording(bytes);
  const Outcome placement =
      outcome_with_options([&] { read_placement_as(source_of(bytes), {.num_ranks = 2}); });
  return routing == Outcome::read ? routing : placement;
}

Outcome exercise_topology(std::span<const std::byte> bytes) {
  return outcome_of([&] {
    const Topology topology = read_topology(source_of(bytes));
    for (RankId from : indices<RankId>(std::min(topology.num_ranks(), 16)))
      for (RankId to : indices<RankId>(std::min(topology.num_ranks(), 16)))
        if (from != to && !(topology.link(from, to).gigabytes_per_s > 0))
          throw std::logic_error("nothing can be sent over a link");
  });
}

Outcome exercise_trained_layer(std::span<const std::byte> bytes) {
  return outcome_of([&] { read_trained_layer(source_of(bytes)); });
}

Outcome exercise_cost(std::span<const std::byte> bytes) {
  return outcome_of([&] { read_cost(source_of(bytes)); });
}

constexpr std::pair<std::string_view, Outcome (*)(std::span<const std::byte>)> targets[] = {
    {"safetensors", exercise_safetensors},
    {"npy", exercise_npy},
    {"npz", exercise_npz},
    {"json", exercise_json},
    {"trace", exercise_trace},
    {"checkpoint", exercise_checkpoint},
    {"pickle", exercise_pickle},
    {"recording", exercise_recording},
    {"foreign", exercise_foreign},
    {"topology", exercise_topology},
    {"trained_layer", exercise_trained_layer},
    {"cost", exercise_cost}};

}  // namespace

Outcome exercise(std::string_view target, std::span<const std::byte> bytes) {
  const auto* const found =
      std::ranges::find_if(targets, [&](const auto& each) { return each.first == target; });
  if (found == std::end(targets)) throw std::invalid_argument("no fuzz target " + std::string(target));
  return found->second(bytes);
}

}  // namespace evenkeel::fuzz
