// The joint plan beside spill alone and chunks alone, for people and for programs.
#pragma once

#include <vector>

#include "cli/bench_joint.h"

namespace evenkeel::cli {

void print_joint(const JointSetup& setup, const std::vector<JointRow>& rows);
void print_joint_json(const JointSetup& setup, const std::vector<JointRow>& rows);

}  // namespace evenkeel::cli
