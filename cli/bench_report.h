// What `evenkeel bench` found, for people and for programs.
#pragma once

#include <vector>

#include "cli/bench_series.h"

namespace evenkeel::cli {

void print_bench_head(const BenchPoint& point);
void print_bench_table(const std::vector<BenchRow>& rows);
void print_bench_json(const BenchPoint& point, const std::vector<BenchRow>& rows);

}  // namespace evenkeel::cli
