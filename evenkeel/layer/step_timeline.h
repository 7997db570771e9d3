// The phases of a step on one rank, and the buffers that its arena lent meanwhile: where time goes, and where
// a peak of memory comes from.
//
// Points   in_use[0] is what was lent when the record began; each buffer that is lent or given back adds one
//          point, the sum after it. A buffer is alive at the points [begin, end), so that at every point the
//          bytes of the buffers alive there are in_use, and the largest is the arena's peak.
// Cost     Unless more happens than there is memory for, noting something down allocates nothing.
//
//   Arena arena(Device::cpu());
//   StepTimeline timeline(arena);
//   MoeOptions options;
//   options.cpu().on_phase = [&](const TimedPhase& phase) { timeline.add(phase); };
//   MoeLayer layer(comm, arena, shape, placement, options);
//   timeline.restart();
//   layer.backward(layer.forward(hidden, top_k, output), grad_output, gradients);
//   const StepRecord record = timeline.record();
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "evenkeel/device/arena_watcher.h"
#include "evenkeel/layer/step_statistics.h"

namespace evenkeel {

struct StepRecord {
  struct Lent {
    Loan loan;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  std::vector<TimedPhase> phases;
  std::vector<std::int64_t> in_use;  // by point
  std::vector<double> seconds;       // by point: wall_seconds()
  std::vector<Lent> buffers;         // in the order they were lent
};

// Watches an arena for as long as it lives; must go before the arena. Used on the arena's thread.
class StepTimeline final : private ArenaWatcher {
 public:
  // With memory for so many points and buffers. Throws InvalidArgument where the arena lends bytes already.
  explicit StepTimeline(Arena& arena, std::size_t points = 4096);
  ~StepTimeline() { arena_.watch(nullptr); }
  StepTimeline(const StepTimeline&) = delete;
  StepTimeline& operator=(const StepTimeline&) = delete;

  void add(const TimedPhase& phase) { record_.phases.push_back(phase); }
  // Forgets all but the buffers that are still lent.
  void restart();
  // All points since then. Buffers that are still lent end with the last point.
  StepRecord record() const;

 private:
  void lent(const Loan& loan, std::int64_t in_use) noexcept override;
  void given_back(std::int64_t begin, std::int64_t in_use) noexcept override;
  void note(std::int64_t in_use);

  Arena& arena_;
  StepRecord record_;
  std::vector<std::size_t> alive_;  // places in record_.buffers, ascending
};

}  // namespace evenkeel
