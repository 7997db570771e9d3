// Records the phases of a step on one rank and the buffers that its arena lent meanwhile: shows where time
// goes and what makes up a memory peak.
//
// Points   in_use[0] is the bytes lent when the record began. Each buffer lent or given back adds one point
//          with the new sum. A buffer is alive at the points [begin, end). At every point the bytes of the
//          buffers that are alive add up to in_use; the largest in_use is the arena's peak.
// Cost     Recording allocates nothing until the reserved points are used up.
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
  std::vector<double> seconds;       // wall_seconds(), by point
  std::vector<Lent> buffers;         // in the order they were lent
};

// Watches an arena until it is destroyed itself. It must be destroyed before the arena, and used on the
// arena's thread.
class StepTimeline final : private ArenaWatcher {
 public:
  // Reserves memory for `points` points and `points` buffers. Throws InvalidArgument if the arena has already
  // lent bytes.
  explicit StepTimeline(Arena& arena, std::size_t points = 4096);
  ~StepTimeline() { arena_.watch(nullptr); }
  StepTimeline(const StepTimeline&) = delete;
  StepTimeline& operator=(const StepTimeline&) = delete;

  void add(const TimedPhase& phase) { record_.phases.push_back(phase); }
  // Starts a new record, which contains only the buffers that are still lent.
  void restart();
  // All points since restart(). Buffers that are still lent end with the last point.
  StepRecord record() const;

 private:
  void lent(const Loan& loan, std::int64_t in_use) noexcept override;
  void given_back(std::int64_t begin, std::int64_t in_use) noexcept override;
  void note(std::int64_t in_use);

  Arena& arena_;
  StepRecord record_;
  std::vector<std::size_t> alive_;  // indices in record_.buffers, ascending
};

}  // namespace evenkeel
