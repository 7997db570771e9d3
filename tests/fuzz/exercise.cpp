#include "tests/fuzz/exercise.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/placement_file.h"
#include "evenkeel/io/profile_file.h"
#include "evenkeel/io/trace_file.h"

namespace evenkeel::fuzz {

namespace {

// Members of a zip may be far longer than the file; past this many elements nothing new happens.
constexpr std::int64_t most_elements = 1 << 18;

std::shared_ptr<const ByteSource> source_of(std::span<const std::byte> bytes) {
  return memory_source({bytes.begin(), bytes.end()}, "input");
}

template <class Reading>
Outcome outcome_of(Reading reading) {
  try {
    reading();
    return Outcome::read;
  } catch (const ParseError&) {
    return Outcome::refused;
  } catch (const Unsupported&) {
    return Outcome::refused;
  }
}

void read_all_arrays(const ArrayFile& file) {
  for (const ArrayInfo& info : file.arrays()) {
    const auto reader = file.reader(info.name);
    const std::int64_t count = std::min(info.num_elements, most_elements);
    std::vector<float> floats(static_cast<std::size_t>(count));
    reader->read(0, std::span(floats));
    if (!is_integer(info.dtype)) continue;
    // Backwards too: a compressed member starts over.
    std::vector<std::int64_t> integers(static_cast<std::size_t>(count - count / 2));
    reader->read(count / 2, std::span(integers));
    reader->read(0, std::span(integers).first(static_cast<std::size_t>(count / 2)));
  }
}

}  // namespace

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
      read_loads(source, {.num_ranks = 3, .layer = 0});
    } catch (const InvalidArgument&) {
      // The file has counts of other than 3 ranks.
    }
  });
  const bool read = placement == Outcome::read || profile == Outcome::read || loads == Outcome::read;
  return read ? Outcome::read : Outcome::refused;
}

Outcome exercise_trace(std::span<const std::byte> bytes) {
  return outcome_of([&] {
    // The number of experts is given: finding it would read all of a long member.
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

Outcome exercise(std::string_view target, std::span<const std::byte> bytes) {
  if (target == "safetensors") return exercise_safetensors(bytes);
  if (target == "npy") return exercise_npy(bytes);
  if (target == "npz") return exercise_npz(bytes);
  if (target == "json") return exercise_json(bytes);
  if (target == "trace") return exercise_trace(bytes);
  throw std::invalid_argument("no fuzz target " + std::string(target));
}

}  // namespace evenkeel::fuzz
