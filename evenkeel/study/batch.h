// The tokens of a step on all ranks, and their routing. The tokens themselves do not depend on the number of
// ranks.
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

// The number of tokens of the rank that has the most in any batch; at least 1.
std::int64_t most_tokens(const std::vector<Batch>& batches);

// A batch of a named workload (routing/workload.h).
Batch batch_of_workload(const std::string& name, const WorkloadShape& shape, std::uint64_t seed);

// Selects tokens of a trace.
struct TraceWindow {
  LayerId layer;
  // Every `step`-th sequence of [begin, end). If sequences are not given, the whole trace is used.
  struct Sequences {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t step = 1;
  };
  std::optional<Sequences> sequences;
  // The number of tokens per rank. If not given, all tokens of the chosen sequences are used. If no sequences
  // are chosen either, up to kTokensPerRank tokens per rank are used.
  std::optional<std::int64_t> tokens_per_rank;
};
inline constexpr std::int64_t kTokensPerRank = 1024;

// Deals the window's tokens to the ranks in order. Whole sequences stay on one rank if the window consists of
// whole sequences; otherwise all ranks get equally many tokens. Router weights are those of the trace, or all
// equal if the trace has none. Errors name the options of `evenkeel run`.
Batch batch_of_trace(TraceReader& trace, const TraceWindow& window, int num_ranks);

}  // namespace evenkeel
