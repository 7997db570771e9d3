// Runs a MoeCase with MoeLayer on threads as ranks that share GPU 0.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/layer/cuda/on_gpu.h"
#include "tests/layer/dense_results.h"

namespace evenkeel::testing {

struct CudaRunOptions {
  PlannerOptions planner{PlannerOptions::Kind::ep};
  bool backward = false;
  int steps = 1;
  int states_in_flight = 1;
  std::int64_t budget = Arena::kNoBudget;
  int borrow_slots = 0;
  int rounds = 2;
  std::vector<std::vector<int>> homes = {};  // empty: contiguous
};

struct CudaRun {
  MoeResult numbers;
  StepReport report;  // of rank 0
  std::int64_t peak_bytes = 0;
};

CudaRun run_on_gpu(const MoeCase& problem, const CudaRunOptions& options);

// A result with allocated but unfilled tensors.
MoeResult empty_result(const MoeCase& problem);

// Captures a step of `first` and replays it with each of `cases`, by overwriting the data at the captured
// addresses. Cases may differ from `first` only in choices and router weights. Returns the outputs of the
// replays and rank 0's reports.
std::vector<CudaRun> replay_on_gpu(const MoeCase& first, const std::vector<MoeCase>& cases,
                                   const CudaRunOptions& options);

}  // namespace evenkeel::testing
