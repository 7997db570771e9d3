// Time over budget, for people and for programs.
#pragma once

#include <vector>

#include "cli/bench_curve.h"

namespace evenkeel::cli {

void print_curves(const CurveSetup& setup, const std::vector<Curve>& curves);
void print_curves_json(const CurveSetup& setup, const std::vector<Curve>& curves);

}  // namespace evenkeel::cli
