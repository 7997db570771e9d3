#include "evenkeel/routing/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <span>

#include "evenkeel/base/error.h"
#include "evenkeel/routing/internal/choosers.h"
#include "evenkeel/routing/internal/draws.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

namespace {

void require_shape(const Workload& workload, const WorkloadShape& shape) {
  if (shape.num_ranks < 1)
    throw InvalidArgument("ranks", fmt::format("{} ranks", shape.num_ranks), "1 or more");
  if (shape.tokens_per_rank < 0)
    throw InvalidArgument("tokens", fmt::format("{} tokens a rank", shape.tokens_per_rank), "0 or more");
  if (shape.num_experts < 1 || shape.num_experts > max_trace_experts)
    throw InvalidArgument("experts", fmt::format("{} experts", shape.num_experts),
                          fmt::format("1..{}", max_trace_experts));
  if (shape.top_k < 1) throw InvalidArgument("top_k", fmt::format("top-{}", shape.top_k), "1 or more");
  if (workload.kind != Workload::Kind::concentrated && shape.top_k > shape.num_experts)
    throw InvalidArgument(
        "top_k",
        fmt::format("{} gives each token distinct experts, but top-{} is more than the {} experts",
                    to_string(workload), shape.top_k, shape.num_experts),
        fmt::format("1..{}", shape.num_experts));
  std::int64_t tokens = 0;
  std::int64_t assignments = 0;
  if (__builtin_mul_overflow(std::int64_t{shape.num_ranks}, shape.tokens_per_rank, &tokens) ||
      __builtin_mul_overflow(tokens, std::int64_t{shape.top_k}, &assignments))
    throw InvalidArgument("tokens", "ranks x tokens x k is above 2^63-1");
}

// The number of tokens on the ranks before rank `rank`. In w4, rank r has r / (0 + 1 + ... + (P - 1)) of all
// tokens: rank 0 has none, and the last rank has about twice the mean.
std::int64_t first_token(const Workload& workload, const WorkloadShape& shape, int rank) {
  if (workload.kind != Workload::Kind::w4_source_ragged || shape.num_ranks == 1)
    return rank * shape.tokens_per_rank;
  const double share =
      static_cast<double>(rank) * (rank - 1) / (static_cast<double>(shape.num_ranks) * (shape.num_ranks - 1));
  const std::int64_t total = shape.num_ranks * shape.tokens_per_rank;
  return rank == shape.num_ranks ? total : static_cast<std::int64_t>(share * static_cast<double>(total));
}

// Gate weights like those of a router: positive, in descending order, adding up to 1. The largest is at most
// twice the smallest.
void fill_weights(internal::Draws& draws, std::span<float> weights) {
  float sum = 0;
  for (float& weight : weights) {
    weight = static_cast<float>(0.5 + draws.fraction() / 2);
    sum += weight;
  }
  std::sort(weights.begin(), weights.end(), std::greater<>());
  for (float& weight : weights) weight /= sum;
}

}  // namespace

std::int64_t Routing::max_tokens() const {
  std::int64_t most = 0;
  for (const RankRouting& rank : ranks) most = std::max(most, rank.num_tokens);
  return most;
}

std::vector<std::int64_t> Routing::loads(int num_experts) const {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(num_experts), 0);
  for (const RankRouting& rank : ranks)
    for (std::int32_t id : rank.ids) ++loads[static_cast<std::size_t>(id)];
  return loads;
}

Routing make_routing(const Workload& workload, const WorkloadShape& shape, std::uint64_t seed,
                     std::uint64_t step) {
  require_shape(workload, shape);
  const internal::Chooser choose = internal::make_chooser(workload, shape, seed, step);
  const auto kind = static_cast<std::uint64_t>(workload.kind);
  const std::size_t k = static_cast<std::size_t>(shape.top_k);
  Routing routing;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const std::int64_t begin = first_token(workload, shape, rank);
    RankRouting& of_rank = routing.ranks.emplace_back();
    of_rank.num_tokens = first_token(workload, shape, rank + 1) - begin;
    of_rank.ids.resize(static_cast<std::size_t>(of_rank.num_tokens) * k);
    of_rank.weights.resize(of_rank.ids.size());
    for (std::int64_t t = 0; t < of_rank.num_tokens; ++t) {
      const std::size_t at = static_cast<std::size_t>(t) * k;
      choose(begin + t, std::span(of_rank.ids).subspan(at, k));
      internal::Draws draws{4, kind, seed, step, static_cast<std::uint64_t>(begin + t)};
      fill_weights(draws, std::span(of_rank.weights).subspan(at, k));
    }
  }
  return routing;
}

}  // namespace evenkeel
