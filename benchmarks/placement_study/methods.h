// The compared ways to place experts.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/placement_study/judge.h"
#include "benchmarks/placement_study/recording.h"
#include "evenkeel/plan/placement.h"

namespace evenkeel::study {

struct Method {
  std::string name;
  Placement placement;
};

// In this order: contiguous homes; homes balanced by load alone, as EPLB does, without copies; the same with
// one more slot a rank; MoETuner's first program alone (cluster c on rank c); both of its programs; both at
// once, by predicted time.
std::vector<Method> all_methods(const Recording& seen, const Setting& setting);
// Both programs of MoETuner: the default of `evenkeel place`.
Placement place_two_stage(const Recording& seen, const Setting& setting);

}  // namespace evenkeel::study
