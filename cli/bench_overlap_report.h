// The waiting that overlap hides, for people and for programs.
#pragma once

#include <vector>

#include "cli/bench_overlap.h"

namespace evenkeel::cli {

void print_overlap(const OverlapSetup& setup, const std::vector<OverlapRow>& rows);
void print_overlap_json(const OverlapSetup& setup, const std::vector<OverlapRow>& rows);

}  // namespace evenkeel::cli
