#include "evenkeel/training_memory/fit.h"

#include <algorithm>
#include <tuple>

#include "evenkeel/training_memory/internal/bytes_math.h"

namespace evenkeel {

namespace {

// Beyond this no sequence is looked for.
constexpr std::int64_t longest = std::int64_t{1} << 40;

bool fits_with(const MemoryModel& memory, std::int64_t sequence, ReceivedRows received,
               const DeviceMemory& device) {
  MemorySetup setup = memory.setup();
  if (received)
    received = internal::narrow(internal::divide_up(internal::Wide{*received} * sequence, setup.sequence));
  setup.sequence = sequence;
  return fit(MemoryModel(memory.model(), setup), received, device).fits;
}

}  // namespace

StageFit fit_stage(const MemoryModel& memory, int stage, ReceivedRows received, const DeviceMemory& device) {
  StageFit result;
  result.stage = stage;
  result.static_bytes = device.static_bytes.value_or(total_bytes(memory.static_items(stage)));
  if (memory.has_experts(stage)) result.received = received.value_or(memory.worst_received());
  result.most_received =
      memory.most_received(stage, device.available_bytes, result.static_bytes, result.received);
  result.choice = mact(result.received, result.most_received, device.bins);
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
