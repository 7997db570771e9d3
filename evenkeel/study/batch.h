// The tokens of a step and what their router says, over all ranks: the same tokens however many ranks share
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/plan/top_k.h"
#include "evenkeel/routing/trace.h"
#include "evenkeel/routing/workload.h"

namespace evenkeel {

struct Batch {
  std::string name;
  int top_k = 1;
  // Rank r has tokens [first_token[r], first_token[r + 1]).
  std::vector<std::int64_t> first_token = {0};
  std::vector<std::int32_t> experts;  // [tokens, k]
  std::vector<float> router_weights;  // [tokens, k]

  int num_ranks() const { return static_cast<int>(first_token.size()) - 1; }
  std::int64_t num_tokens() const { return first_token.back(); }
  std::int64_t tokens_of(RankId rank) const {
    return first_token[rank.offset() + 1] - first_token[rank.offset()];
  }
  std::int64_t most_tokens() const;
  TopK top_k_of(RankId rank) const { return top_k_of(first_token[rank.offset()], tokens_of(rank)); }
  TopK all() const { return top_k_of(0, num_tokens()); }
  // The same tokens, all on one rank.
  Batch on_one_rank() const;

 private:
  TopK top_k_of(std::int64_t begin, std::int64_t tokens) const;
};

// That any rank brings to a step of any batch; 1 at least.
std::int64_t most_tokens(const std::vector<Batch>& batches);

// Of a named workload (routing/workload.h).
Batch batch_of_workload(const std::string& name, const WorkloadShape& shape, std::uint64_t seed);

// Which tokens of a trace.
struct TraceWindow {
  LayerId layer;
  // Sequences [begin, end) in steps; without, all of the trace.
  struct Sequences {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t step = 1;
  };
  std::optional<Sequences> sequences;
  // For each rank. Without: the chosen sequences whole, or the first kTokensPerRank for each rank that there
  // are.
  std::optional<std::int64_t> tokens_per_rank;
};
inline constexpr std::int64_t kTokensPerRank = 1024;

// Ranks get the window's tokens in order: sequences whole where the window is made of whole ones, else equal
// numbers of tokens. Router weights are the trace's, or equal where it has none. Errors name the options of
// `evenkeel run`.
Batch batch_of_trace(TraceReader& trace, const TraceWindow& window, int num_ranks);

}  // namespace evenkeel
