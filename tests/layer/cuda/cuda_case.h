// A MoeCase run by MoeLayer: its ranks are threads that share GPU 0.
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

// The tensors that a run fills, without numbers.
MoeResult empty_result(const MoeCase& problem);

// Captures a step of `first` and replays it with each of `cases`, which differ from it in choices and router
// weights alone, by changing what the captured addresses hold. The outputs of the replays, and rank 0's
// reports.
std::vector<CudaRun> replay_on_gpu(const MoeCase& first, const std::vector<MoeCase>& cases,
                                   const CudaRunOptions& options);

}  // namespace evenkeel::testing
