#include "evenkeel/training_memory/fit.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "evenkeel/base/error.h"
#include "evenkeel/training_memory/internal/bytes_math.h"

namespace evenkeel {

using internal::divide_up;
using internal::narrow;
using internal::Wide;

namespace {

// The longest sequence that is tried.
constexpr std::int64_t longest = std::int64_t{1} << 40;

bool fits_with(const MemoryModel& memory, std::int64_t sequence, ReceivedRows received,
               const DeviceMemory& device) {
  MemorySetup setup = memory.setup();
  if (received) received = narrow(divide_up(Wide{*received} * sequence, setup.sequence));
  setup.sequence = sequence;
  return fit(MemoryModel(memory.model(), setup), received, device).fits;
}

// Returns 0 if no number of chunks is enough. Active memory never grows with the number of chunks. It stops
// shrinking at one row or token per chunk.
std::int64_t fewest_chunks(const MemoryModel& memory, const StageFit& stage, std::int64_t received,
                           const DeviceMemory& device) {
  const auto fit_in = [&](std::int64_t chunks) {
    return stage.static_bytes + total_bytes(memory.active_items(stage.stage, received, chunks)) <=
           device.available_bytes;
  };
  std::int64_t most = std::max({received, memory.setup().sequence, std::int64_t{1}});
  if (fit_in(1)) return 1;
  if (!fit_in(most)) return 0;
  std::int64_t least = 1;  // a count that does not fit
  while (most - least > 1) {
    const std::int64_t middle = least + (most - least) / 2;
    (fit_in(middle) ? most : least) = middle;
  }
  return most;
}

}  // namespace

MactChoice choose_chunks(const MemoryModel& memory, const StageFit& stage, std::int64_t received,
                         const DeviceMemory& device) {
  const ExtraTerms& extra = memory.setup().extra;
  if (!extra.kept_tensors && !extra.communication_buffers)
    return mact(received,
                memory.most_received(stage.stage, device.available_bytes, stage.static_bytes, received),
                device.bins);
  if (received < 0) throw InvalidArgument("received", "is " + std::to_string(received), "0 or more rows");
  return choose_bin(fewest_chunks(memory, stage, received, device), device.bins);
}

std::int64_t share_of(std::int64_t device_bytes, std::int64_t thousandths) {
  return internal::narrow(internal::Wide{device_bytes} * thousandths / 1000);
}

StageFit fit_stage(const MemoryModel& memory, int stage, ReceivedRows received, const DeviceMemory& device) {
  StageFit result;
  result.stage = stage;
  result.static_bytes = device.static_bytes.value_or(total_bytes(memory.static_items(stage)));
  if (memory.has_experts(stage)) result.received = received.value_or(memory.worst_received());
  result.most_received =
      memory.most_received(stage, device.available_bytes, result.static_bytes, result.received);
  result.choice = choose_chunks(memory, result, result.received, device);
  if (result.choice.least_chunks > 0)  // more chunks also need fewer bytes for the tokens of a chunk
    result.most_received =
        std::max(result.most_received, narrow(divide_up(Wide{result.received}, result.choice.least_chunks)));
  result.active_bytes = total_bytes(memory.active_items(stage, result.received, result.choice.chunks));
  result.fits = result.total_bytes() <= device.available_bytes;
  return result;
}

Fit fit(const MemoryModel& memory, ReceivedRows received, const DeviceMemory& device) {
  Fit result;
  for (int stage = 0; stage < memory.num_stages(); ++stage)
    result.stages.push_back(fit_stage(memory, stage, received, device));
  const auto need = [](const StageFit& stage) {
    return std::tuple(!stage.fits, stage.choice.chunks, stage.total_bytes());
  };
  result.tightest = std::ranges::max_element(result.stages, {}, need)->stage;
  result.fits = std::ranges::all_of(result.stages, &StageFit::fits);
  return result;
}

std::int64_t longest_sequence(const MemoryModel& memory, ReceivedRows received, const DeviceMemory& device) {
  std::int64_t fits = 0;
  std::int64_t fails = longest + 1;
  while (fails - fits > 1) {
    const std::int64_t middle = fits + (fails - fits) / 2;
    (fits_with(memory, middle, received, device) ? fits : fails) = middle;
  }
  return fits;
}

}  // namespace evenkeel
