// When a solver must stop, and its progress reports. Holds the time limit, stop token and progress callback
// of one call, shared by the parts (layers, steps) that the call is split into.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "evenkeel/placement/internal/proof.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel::internal {

// The note for a result whose search was ended by the time limit.
inline std::string note_of_time_limit(double time_limit_s) {
  return fmt::format("the time limit of {} s ended the search: this is the best so far", time_limit_s);
}

class Deadline {
 public:
  // `least_seconds`: minimum run time, so that bounds are always computed. They take milliseconds on most
  // machines.
  explicit Deadline(SolveLimits limits, double least_seconds = 0)
      : limits_(std::move(limits)), least_seconds_(least_seconds), start_(Clock::now()) {}

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double seconds_left() const { return std::max(0.0, limits_.time_limit_s - seconds()); }
  // Takes about 30 ns, so a loop over ranks or experts can call it in each step that takes at least as long.
  bool passed() const {
    const double spent = seconds();
    return spent >= least_seconds_ && (spent >= limits_.time_limit_s || stop_requested());
  }
  bool stop_requested() const { return limits_.stop.stop_requested(); }
  // Limits for a sub-solver: the time left and the stop token. The sub-solver reports no progress, since its
  // figures belong to another problem, and does not stop at this problem's gap.
  SolveLimits left() const { return {.time_limit_s = seconds_left(), .stop = limits_.stop}; }

  // Objective and bound of the other parts. report() adds them to those of the part being solved.
  void set_rest(double objective, double bound) {
    rest_objective_ = objective;
    rest_bound_ = bound;
  }
  void report(double objective, double bound) const {
    if (limits_.progress) limits_.progress(rest_objective_ + objective, rest_bound_ + bound, seconds());
  }
  double relative_gap() const { return limits_.relative_gap; }
  bool close_enough(double objective, double bound) const {
    return is_within_gap(objective, bound, limits_.relative_gap);
  }
  // How far above `bound` the part being solved may end so that all parts together are within the gap.
  // Negative if the other parts are too far from their bounds.
  double spare_gap(double bound) const {
    return limits_.relative_gap * (rest_objective_ + bound) - (rest_objective_ - rest_bound_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  SolveLimits limits_;
  double least_seconds_;
  Clock::time_point start_;
  double rest_objective_ = 0;
  double rest_bound_ = 0;
};

}  // namespace evenkeel::internal
