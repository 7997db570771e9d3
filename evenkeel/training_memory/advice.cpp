#include "evenkeel/training_memory/advice.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/training_memory/internal/tensor_degree.h"

namespace evenkeel {

namespace {

using Change = Advice::Change;

constexpr std::int64_t most_times = 1024;  // largest factor tried for the number of devices

class Adviser {
 public:
  Adviser(const MemoryModel& memory, ReceivedRows received, const DeviceMemory& device)
      : memory_(memory), received_(received), device_(device), bound_(fit(memory, received, device)) {}

  std::vector<Advice> ask() {
    ask_for_chunks();
    ask_for_switches();
    ask_for_a_smaller_batch();
    if (!device_.static_bytes) ask_for_devices();
    ask_for_memory();
    return std::move(found_);
  }

 private:
  bool fits(const MemorySetup& setup) const {
    try {
      return fit(MemoryModel(memory_.model(), setup), received_, device_).fits;
    } catch (const InvalidArgument&) {
      return false;  // such a set-up is impossible
    }
  }
  void add(Change change, std::int64_t value) { found_.push_back({change, value, {}}); }

  void ask_for_chunks() {
    std::int64_t most = 0;
    for (const StageFit& stage : bound_.stages) {
      if (stage.choice.least_chunks == 0) return;
      most = std::max(most, stage.choice.least_chunks);
    }
    if (most <= device_.bins.back()) return;
    DeviceMemory device = device_;
    device.bins = {most};
    if (fit(memory_, received_, device).fits) add(Change::chunks, most);
  }

  void ask_for_switches() {
    MemorySetup setup = memory_.setup();
    setup.full_recompute = true;
    setup.selective = {};
    if (!memory_.setup().full_recompute && fits(setup)) add(Change::full_recompute, 1);
    if (device_.static_bytes) return;
    for (const auto& [change, term] : {std::pair{Change::sharded_optimizer, &ExtraTerms::sharded_optimizer},
                                       std::pair{Change::fully_sharded, &ExtraTerms::fully_sharded}}) {
      setup = memory_.setup();
      if (std::exchange(setup.extra.*term, true)) continue;
      if (fits(setup)) add(change, 1);
    }
  }

  void ask_for_a_smaller_batch() {
    MemorySetup setup = memory_.setup();
    while (--setup.micro_batch > 0)
      if (fits(setup)) {
        add(Change::micro_batch, setup.micro_batch);
        break;
      }
    if (const std::int64_t sequence = longest_sequence(memory_, received_, device_); sequence > 0)
      add(Change::sequence, sequence);
  }

  // The layout in which each degree is multiplied by that of `times`, with enough data parallelism to hold
  // all experts.
  Parallelism multiplied(const Parallelism& times) const {
    Parallelism parallel = memory_.setup().parallel;
    parallel.tensor *= times.tensor;
    parallel.pipeline *= times.pipeline;
    parallel.expert *= times.expert;
    parallel.context *= times.context;
    parallel.data = round_up(parallel.data, parallel.least_data());
    return parallel;
  }

  bool fits(const Parallelism& parallel) const {
    const bool more_tensor = parallel.tensor > memory_.setup().parallel.tensor;
    if (more_tensor && !internal::may_split_heads(memory_.model(), parallel.tensor)) return false;
    MemorySetup setup = memory_.setup();
    setup.parallel = parallel;
    return fits(setup);
  }

  void ask_for_devices() {
    const std::array<std::pair<Change, std::int64_t Parallelism::*>, 4> single = {
        {{Change::tensor, &Parallelism::tensor},
         {Change::pipeline, &Parallelism::pipeline},
         {Change::expert, &Parallelism::expert},
         {Change::context, &Parallelism::context}}};
    const std::size_t before = found_.size();
    for (const auto& [change, degree] : single)
      for (Parallelism times{}; (times.*degree *= 2) <= most_times;)
        if (const Parallelism parallel = multiplied(times); fits(parallel)) {
          found_.push_back({change, parallel.*degree, parallel});
          break;
        }
    if (found_.size() == before) ask_for_devices_together();
  }

  void ask_for_devices_together() {
    std::vector<Parallelism> layouts;
    for (std::int64_t tensor = 1; tensor <= internal::most_tensor; tensor *= 2)
      for (std::int64_t pipeline = 1; pipeline <= most_times; pipeline *= 2)
        for (std::int64_t expert = 1; expert <= most_times; expert *= 2)
          layouts.push_back(multiplied({.tensor = tensor, .pipeline = pipeline, .expert = expert}));
    std::ranges::stable_sort(layouts, {}, &Parallelism::devices);
    const std::int64_t now = memory_.setup().parallel.devices();
    for (const Parallelism& parallel : layouts) {
      const std::int64_t times = (parallel.devices() + now - 1) / now;
      if (times > most_times) return;
      if (fits(parallel)) return found_.push_back({Change::devices, times, parallel});
    }
  }

  void ask_for_memory() {
    std::int64_t needed = 0;
    for (const StageFit& stage : bound_.stages)
      needed = std::max(needed, stage.static_bytes + total_bytes(memory_.active_items(
                                                         stage.stage, stage.received, device_.bins.back())));
    add(Change::available_bytes, needed);
  }

  const MemoryModel& memory_;
  ReceivedRows received_;
  const DeviceMemory& device_;
  Fit bound_;
  std::vector<Advice> found_;
};

}  // namespace

std::string_view name_of(Change change) {
  constexpr std::array<std::string_view, 12> names = {"chunks",        "full_recompute", "sharded_optimizer",
                                                      "fully_sharded", "micro_batch",    "sequence",
                                                      "tensor",        "pipeline",       "expert",
                                                      "context",       "devices",        "available_bytes"};
  return names[static_cast<std::size_t>(change)];
}

std::vector<Advice> what_would_fit(const MemoryModel& memory, ReceivedRows received,
                                   const DeviceMemory& device) {
  return Adviser(memory, received, device).ask();
}

}  // namespace evenkeel
