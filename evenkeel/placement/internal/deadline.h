// When a solver must end, and what it tells meanwhile: the time limit, the stop token and the caller's
// progress of one call, shared by the parts (layers, steps) that the call is split into.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "evenkeel/placement/internal/proof.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel::internal {

// What a result says whose search the limit ended.
inline std::string note_of_time_limit(double time_limit_s) {
  return fmt::format("the time limit of {} s ended the search: this is the best so far", time_limit_s);
}

class Deadline {
 public:
  // `least_seconds` are had whatever happens: for bounds, which take milliseconds on most machines, and
  // without which an answer says nothing of itself.
  explicit Deadline(SolveLimits limits, double least_seconds = 0)
      : limits_(std::move(limits)), least_seconds_(least_seconds), start_(Clock::now()) {}

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double seconds_left() const { return std::max(0.0, limits_.time_limit_s - seconds()); }
  // Takes some 30 ns: every loop over ranks or experts whose steps take no less can afford it.
  bool passed() const {
    const double spent = seconds();
    return spent >= least_seconds_ && (spent >= limits_.time_limit_s || stop_requested());
  }
  bool stop_requested() const { return limits_.stop.stop_requested(); }
  // For a solver that is a step of this one: what is left of the time. It tells nobody, as its figures are of
  // another problem, and it is not to stop at the gap of this one.
  SolveLimits left() const { return {.time_limit_s = seconds_left(), .stop = limits_.stop}; }

  // The objective and bound of the other parts. report() adds them to those of the part that is being solved.
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
  // How far above `bound` the part that is being solved may end for all parts together to be within the gap;
  // below 0 where the other parts are too far from it.
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
