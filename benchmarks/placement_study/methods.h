// The ways to place experts that are compared.
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

// contiguous; balanced by load alone as EPLB does, without copies and with one more slot a rank; the first
// program of MoETuner alone (cluster c on rank c), both programs, and both at once by predicted time.
std::vector<Method> all_methods(const Recording& seen, const Setting& setting);
// Both programs, the default of `evenkeel place`.
Placement place_two_stage(const Recording& seen, const Setting& setting);

}  // namespace evenkeel::study
