// One MoE layer problem: seeded weights, tokens of several ranks and their routing, and ways to run it.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/layer/dense_reference.h"
#include "evenkeel/layer/moe_layer.h"

namespace evenkeel::testing {

// ThreadSanitizer makes a step about ten times slower, so tests run fewer rounds under it.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kUnderThreadSanitizer = true;
#else
inline constexpr bool kUnderThreadSanitizer = false;
#endif

// Numbers in the layer's type.
class Tensor {
 public:
  Tensor() = default;
  Tensor(std::int64_t count, DataType type)
      : type_(type), bytes_(static_cast<std::size_t>(count * bytes_of(type))) {}

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()) / bytes_of(type_); }
  float operator[](std::int64_t i) const;
  void set(std::int64_t i, float value);
  void* data(std::int64_t i = 0) { return bytes_.data() + i * bytes_of(type_); }
  const void* data(std::int64_t i = 0) const { return bytes_.data() + i * bytes_of(type_); }
  friend bool operator==(const Tensor&, const Tensor&) = default;

 private:
  DataType type_ = DataType::f32;
  std::vector<std::byte> bytes_;
};

Tensor random_tensor(std::int64_t count, DataType type, float scale, std::mt19937_64& random);

struct CaseShape {
  MoeShape moe;
  std::vector<std::int64_t> tokens;  // by rank
  double skew = 1.0;                 // skew of the experts' popularity; 0: even
  double no_expert = 0.0;            // share of ids that are -1
};

class MoeCase {
 public:
  MoeCase(CaseShape shape, std::uint64_t seed);

  const CaseShape& shape() const { return shape_; }
  int ranks() const { return static_cast<int>(shape_.tokens.size()); }
  std::int64_t all_tokens() const { return begin_.back(); }
  // The choices for the tokens of all ranks in order, or for those of one rank.
  TopK top_k() const { return top_k(0, all_tokens()); }
  TopK top_k_of(int rank) const { return top_k(begin_[at(rank)], begin_[at(rank) + 1]); }
  std::span<const ExpertWeights> weights() const { return weights_; }
  std::vector<ExpertWeights> weights_of(std::span<const ExpertId> experts) const;
  ConstRows hidden(std::int64_t first, std::int64_t count) const { return rows(hidden_, first, count); }
  ConstRows grad_output(std::int64_t first, std::int64_t count) const {
    return rows(grad_output_, first, count);
  }
  std::int64_t first_token(int rank) const { return begin_[at(rank)]; }
  // The same tokens, dealt as evenly as possible to a different number of ranks.
  MoeCase dealt_to(int ranks) const;
  // Mutable, for tests of special cases.
  std::vector<std::int32_t>& ids() { return ids_; }

  DenseResult dense(bool backward) const;

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  TopK top_k(std::int64_t begin, std::int64_t end) const;
  ConstRows rows(const Tensor& tensor, std::int64_t first, std::int64_t count) const;
  void deal(std::vector<std::int64_t> tokens);
  void point_at_weights();

  CaseShape shape_;
  std::vector<std::int64_t> begin_;
  Tensor hidden_, grad_output_, gate_up_, down_, gate_up_bias_, down_bias_;
  std::vector<ExpertWeights> weights_;
  std::vector<std::int32_t> ids_;
  std::vector<float> router_weights_;
};

struct MoeResult {
  Tensor output;
  Tensor grad_hidden;
  std::vector<float> grad_router_weights;
  std::vector<std::vector<float>> gate_up, down, gate_up_bias, down_bias;  // gradients, by expert
  std::vector<std::int64_t> peak_bytes;                                    // by rank
  std::int64_t transfers = 0;
  std::size_t chunks = 0;
  std::int64_t least_budget = 0;
};

struct RunOptions {
  PlannerOptions planner{PlannerOptions::Kind::ep};
  bool backward = false;
  int steps = 1;                        // repeats of the step; weight gradients are of one repeat
  std::vector<std::vector<int>> homes;  // empty: contiguous
  std::int64_t budget = Arena::kNoBudget;
  MemoryOptions memory = {};
  std::vector<int> node_of_rank = {};
  bool sum_in_nodes = false;
};

// Runs the case on its ranks as threads.
MoeResult run(const MoeCase& problem, const RunOptions& options);

}  // namespace evenkeel::testing
