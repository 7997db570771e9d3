// How far a solve has come and whether it has to end: the clock, the stop token and the caller's progress of
// one call, shared by the parts (layers, steps) that the call is split into.
#pragma once

#include <algorithm>
#include <chrono>

#include "evenkeel/placement/problem.h"

namespace evenkeel::exact {

class Monitor {
 public:
  explicit Monitor(const SolveLimits& limits) : limits_(limits) {}

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  double seconds_left() const { return std::max(0.0, limits_.time_limit_s - seconds()); }
  bool must_end() const { return limits_.stop.stop_requested() || seconds_left() <= 0; }
  bool stop_requested() const { return limits_.stop.stop_requested(); }
  double relative_gap() const { return limits_.relative_gap; }

  // The objective and bound of the other parts. report() adds them to those of the part that is being solved.
  void set_rest(double objective, double bound) {
    rest_objective_ = objective;
    rest_bound_ = bound;
  }
  void report(double objective, double bound) const {
    if (limits_.progress) limits_.progress(rest_objective_ + objective, rest_bound_ + bound, seconds());
  }

 private:
  SolveLimits limits_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double rest_objective_ = 0;
  double rest_bound_ = 0;
};

// A proven objective and bound are one number: what rounding left between them is not a gap.
template <class Answer>
void settle(Answer& answer, double& objective, double& bound, bool solved_to_the_end) {
  bound = std::min(bound, objective);
  if (solved_to_the_end || objective - bound <= 1e-9 * objective) bound = objective;
  answer.proven_optimal = bound == objective;
}

}  // namespace evenkeel::exact
