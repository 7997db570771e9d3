// Runs all ranks of a step on one GPU and one stream, one after the other, and times each rank's work alone.
// Rows move within the GPU; bytes that would cross a link are counted.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/cuda/event_timer.h"
#include "evenkeel/balance/cuda/planner.h"
#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/layer/cuda/layer_buffers.h"
#include "evenkeel/layer/moe_layer.h"
#include "evenkeel/plan/cuda/placement_tables.h"
#include "tests/support/device_memory.h"

namespace evenkeel::benchmark {

struct ModelCase {
  std::string name;
  MoeShape moe;
  int ranks = 8;
  std::int64_t tokens = 0;  // for each rank
};

// Expert ids of one rank's tokens: the fraction `share` goes to the first `hot` experts, the rest to the
// others.
std::vector<std::int32_t> concentrated_ids(std::mt19937_64& random, const ModelCase& model, double share,
                                           int hot);

// A rank's work in a step, in milliseconds, and the amounts that would cross a link.
struct RankTimes {
  double plan = 0, tables = 0, gather = 0, experts = 0, combine = 0;
  std::int64_t positions = 0;
  std::int64_t rows = 0;  // rows on this rank, including those of its own tokens
  std::int64_t rows_in = 0, rows_out = 0, results_in = 0, results_out = 0;
  std::int64_t weights_in = 0, weights_out = 0;  // counted in experts
  std::int64_t bytes = 0;  // device memory without native weights and the caller's tensors
  int chunks = 1;

  double alone() const { return plan + tables + gather + experts + combine; }
};

// With kNoBudget, a rank's buffers are as large as the routing needs. With any other budget, they are those
// that a layer has for that many bytes.
inline constexpr std::int64_t kNoBudget = -1;

// The weights and tokens of a model, for any number of steps.
class RanksInTurn {
 public:
  RanksInTurn(const ModelCase& model, CudaStream& stream);

  // `ids` by rank. Returns the medians of `repeats` steps. Throws BudgetTooSmall as MoeLayer does.
  std::vector<RankTimes> run(const std::vector<std::vector<std::int32_t>>& ids, const PlannerOptions& planner,
                             int repeats, std::int64_t budget = kNoBudget);

  const ModelCase& model() const { return model_; }
  cuda::ExpertLayout layout() const;

 private:
  friend class StepRunner;
  using Bytes = testing::DeviceMemory<std::byte>;

  ModelCase model_;
  CudaStream& stream_;
  EventTimer timer_;
  LayerPlacement placement_;
  cuda::PlacementTables tables_;
  std::shared_ptr<const CudaExpertFfn> ffn_;
  Bytes weights_, hidden_, output_;
  testing::DeviceMemory<float> router_weights_;
};

}  // namespace evenkeel::benchmark
