#include "evenkeel/training_memory/layout_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "evenkeel/base/error.h"
#include "evenkeel/training_memory/internal/tensor_degree.h"

namespace evenkeel {

namespace {

// All layouts of the model that use exactly `devices` devices.
std::vector<Parallelism> layouts_of(const ModelDescription& model, const Parallelism& setup,
                                    std::int64_t devices) {
  std::vector<Parallelism> layouts;
  for (std::int64_t tensor = 1; tensor <= internal::most_tensor; tensor *= 2) {
    if (!internal::may_split_heads(model, tensor) || devices % (tensor * setup.context) != 0) continue;
    const std::int64_t left = devices / (tensor * setup.context);
    for (std::int64_t pipeline = 1; pipeline <= model.num_layers / setup.virtual_stages; ++pipeline)
      for (std::int64_t expert = 1; expert <= model.experts.count; ++expert) {
        if (left % pipeline != 0 || model.experts.count % expert != 0) continue;
        Parallelism parallel = setup;
        parallel.tensor = tensor;
        parallel.pipeline = pipeline;
        parallel.expert = expert;
        parallel.data = left / pipeline;
        if (parallel.stage_devices() % parallel.expert_parts() == 0) layouts.push_back(parallel);
      }
  }
  return layouts;
}

}  // namespace

std::vector<LayoutFit> rank_layouts(const MemoryModel& memory, std::int64_t devices, ReceivedRows received,
                                    const DeviceMemory& device) {
  if (devices < 1 || devices > most_degree)
    throw InvalidArgument("devices", fmt::format("{}", devices), fmt::format("1..{}", most_degree));
  std::vector<LayoutFit> found;
  for (const Parallelism& parallel : layouts_of(memory.model(), memory.setup().parallel, devices)) {
    MemorySetup setup = memory.setup();
    setup.parallel = parallel;
    found.push_back({parallel, fit(MemoryModel(memory.model(), setup), received, device)});
  }
  std::ranges::stable_sort(found, {}, [](const LayoutFit& layout) {
    const StageFit& stage = layout.fit.tightest_stage();
    return std::tuple(!layout.fit.fits, stage.choice.chunks,
                      layout.parallel.tensor * layout.parallel.pipeline, stage.total_bytes());
  });
  return found;
}

}  // namespace evenkeel
