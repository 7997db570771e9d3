// The results of `evenkeel bench`, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_series.h"
#include "cli/calibrate.h"

namespace evenkeel::cli {

// One line on what the layer is.
std::string layer_of(const BenchSetup& setup);
void print_bench_head(const BenchPoint& point);
void print_bench_table(const Budget& budget, const std::vector<BenchRow>& rows);
void print_calibration(const Calibration& calibration, const std::string& file, bool json);
void print_bench_json(const BenchPoint& point, const std::vector<BenchRow>& rows);

}  // namespace evenkeel::cli
