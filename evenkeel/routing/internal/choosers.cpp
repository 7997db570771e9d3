#include "evenkeel/routing/internal/choosers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/routing/internal/draws.h"

namespace evenkeel::internal {

namespace {

using Kind = Workload::Kind;

// All inputs of a chooser's draws except the token.
struct Step {
  Workload workload;
  WorkloadShape shape;
  std::uint64_t seed;
  std::uint64_t step;

  int experts() const { return shape.num_experts; }
  int top_k() const { return shape.top_k; }
  std::int64_t total_tokens() const { return shape.num_ranks * shape.tokens_per_rank; }
  std::uint64_t kind() const { return static_cast<std::uint64_t>(workload.kind); }

  // Draws of one token (or block of tokens) of this step.
  Draws of(std::int64_t token) const {
    return Draws{1, kind(), seed, step, static_cast<std::uint64_t>(token)};
  }
  // Draws that all steps of a run share.
  Draws of_run() const { return Draws{2, kind(), seed}; }
  // Draws that all tokens of this step share.
  Draws of_step() const { return Draws{3, kind(), seed, step}; }
};

// Blocks of tokens. Each block chooses every expert equally often, in a random order of its own.
Chooser balanced(const Step& s) {
  const std::int64_t block_tokens = s.experts() / std::gcd(s.experts(), s.top_k());
  struct Block {
    std::int64_t number = -1;
    std::vector<std::int32_t> order;
  };
  return [s, block_tokens, block = Block{}](std::int64_t token, std::span<std::int32_t> ids) mutable {
    if (const std::int64_t number = token / block_tokens; number != block.number)
      block = {number, s.of(number).permutation(s.experts())};
    const std::int64_t first = token % block_tokens * s.top_k();
    for (std::size_t j = 0; j < ids.size(); ++j)
      ids[j] = block.order[static_cast<std::size_t>((first + static_cast<std::int64_t>(j)) % s.experts())];
  };
}

void require_concentrated_fits(const Step& s) {
  const Workload& w = s.workload;
  if (w.hot_experts > s.experts())
    throw InvalidArgument(
        "scenario",
        fmt::format("{} has {} hot experts, but there are only {}", to_string(w), w.hot_experts, s.experts()),
        fmt::format("N in 1..{}", s.experts()));
  if (w.hot_experts == s.experts() && w.share < 1)
    throw InvalidArgument(
        "scenario",
        fmt::format("{} makes all {} experts hot, so none is left for the other assignments", to_string(w),
                    s.experts()),
        s.experts() == 1 ? "F = 1" : fmt::format("N in 1..{}, or F = 1", s.experts() - 1));
}

// Appends `count` assignments dealt evenly over the experts.
void deal_evenly(std::span<const std::int32_t> experts, std::int64_t count, std::vector<std::int32_t>& out) {
  if (experts.empty()) return;
  const std::int64_t each = count / std::ssize(experts);
  const std::int64_t longer = count % std::ssize(experts);
  for (std::size_t i = 0; i < experts.size(); ++i)
    out.insert(out.end(), static_cast<std::size_t>(each + (static_cast<std::int64_t>(i) < longer ? 1 : 0)),
               experts[i]);
}

// Makes all assignments of the step with the exact shares, then shuffles them over all tokens.
Chooser concentrated(const Step& s) {
  require_concentrated_fits(s);
  const std::int64_t total = s.total_tokens() * s.top_k();
  const auto hot = static_cast<std::int64_t>(std::llround(s.workload.share * static_cast<double>(total)));
  std::vector<std::int32_t> order(static_cast<std::size_t>(s.experts()));
  std::iota(order.begin(), order.end(), 0);
  if (s.workload.spread) order = s.of_run().permutation(s.experts());
  const auto hot_experts = std::span(order).first(static_cast<std::size_t>(s.workload.hot_experts));
  const auto others = std::span(order).subspan(hot_experts.size());

  auto all = std::make_shared<std::vector<std::int32_t>>();
  all->reserve(static_cast<std::size_t>(total));
  deal_evenly(hot_experts, hot, *all);
  deal_evenly(others, total - hot, *all);
  s.of_step().shuffle(std::span(*all));
  return [all](std::int64_t token, std::span<std::int32_t> ids) {
    std::copy_n(all->begin() + token * std::ssize(ids), ids.size(), ids.begin());
  };
}

Chooser by_popularity(const Step& s, const std::vector<double>& popularity) {
  return [s, experts = WeightedExperts(popularity)](std::int64_t token, std::span<std::int32_t> ids) {
    Draws draws = s.of(token);
    experts.distinct(draws, ids);
  };
}

std::vector<double> zipf_popularity(const Step& s) {
  std::vector<double> popularity(static_cast<std::size_t>(s.experts()));
  const auto order = s.of_run().permutation(s.experts());
  for (std::size_t i = 0; i < order.size(); ++i)
    popularity[static_cast<std::size_t>(order[i])] =
        std::pow(static_cast<double>(i + 1), -s.workload.exponent);
  return popularity;
}

std::vector<double> lognormal_popularity(const Step& s) {
  std::vector<double> popularity(static_cast<std::size_t>(s.experts()));
  Draws draws = s.of_run();
  for (double& of_expert : popularity) {
    // The Box-Muller transform makes a normal number from two uniform ones. 1 - fraction() is never 0.
    const double radius = std::sqrt(-2 * std::log(1 - draws.fraction()));
    const double normal = radius * std::cos(2 * std::numbers::pi * draws.fraction());
    of_expert = std::exp(s.workload.exponent * normal);
  }
  return popularity;
}

// Each run has its own random order of experts. The `hot` experts from position `first` on have popularity
// `share` in total; the others have the rest.
std::vector<double> hot_popularity(const Step& s, int hot, std::int64_t first, double share) {
  const auto order = s.of_run().permutation(s.experts());
  const int cold = s.experts() - hot;
  std::vector<double> popularity(order.size(), cold > 0 ? (1 - share) / cold : 0);
  for (std::int64_t i = 0; i < hot; ++i)
    popularity[static_cast<std::size_t>(order[static_cast<std::size_t>((first + i) % s.experts())])] =
        share / hot;
  return popularity;
}

std::vector<double> drift_popularity(const Step& s) {
  const int hot = std::max(s.top_k(), s.experts() / 16);
  const auto first = static_cast<std::int64_t>(s.step % static_cast<std::uint64_t>(s.experts()));
  return hot_popularity(s, hot, first, 0.5);
}

std::vector<double> collapse_popularity(const Step& s) {
  const int hot = std::max(s.top_k(), s.experts() / 32);
  const double rest_when_even = 1 - static_cast<double>(hot) / s.experts();
  const double halvings = 1 + static_cast<double>(s.step) / 2;
  return hot_popularity(s, hot, 0, 1 - rest_when_even * std::exp2(-halvings));
}

// The number of hot experts in Megatron-LM's workloads: a quarter of the experts, but at least top_k.
int hot_width(const Step& s) {
  return std::max(s.top_k(), s.experts() / 4);
}

std::vector<std::int32_t> block_of_experts(int first, int count, int num_experts) {
  std::vector<std::int32_t> block(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) block[static_cast<std::size_t>(i)] = (first + i) % num_experts;
  return block;
}

std::vector<std::int32_t> evenly_spaced_experts(int count, int num_experts) {
  std::vector<std::int32_t> spaced(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    spaced[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * num_experts / count);
  return spaced;
}

// Tokens choose among the experts in `hot`. Token 0 and every `period`-th token after it choose among all
// experts.
Chooser mostly_among(const Step& s, std::vector<std::int32_t> hot, std::int64_t period) {
  return [s, hot = std::move(hot), period](std::int64_t token, std::span<std::int32_t> ids) {
    Draws draws = s.of(token);
    if (token % period == 0) return draws.distinct(s.experts(), ids);
    draws.distinct(static_cast<int>(hot.size()), ids);
    for (std::int32_t& id : ids) id = hot[static_cast<std::size_t>(id)];
  };
}

Chooser among_all(const Step& s) {
  return [s](std::int64_t token, std::span<std::int32_t> ids) { s.of(token).distinct(s.experts(), ids); };
}

Chooser round_robin(const Step& s) {
  return [s](std::int64_t token, std::span<std::int32_t> ids) {
    const std::int64_t first = token % s.experts() * s.top_k();
    for (std::size_t j = 0; j < ids.size(); ++j)
      ids[j] = static_cast<std::int32_t>((first + static_cast<std::int64_t>(j)) % s.experts());
  };
}

// Tokens choose among the upper half of the experts, so ranks that own only the lower half get no load.
Chooser among_upper_half(const Step& s) {
  const int unused = s.experts() / 2;
  if (s.experts() - unused < s.top_k())
    throw InvalidArgument("top_k",
                          fmt::format("w5 uses {} of {} experts, fewer than top-{}", s.experts() - unused,
                                      s.experts(), s.top_k()),
                          fmt::format("at most {}", s.experts() - unused));
  return [s, unused](std::int64_t token, std::span<std::int32_t> ids) {
    s.of(token).distinct(s.experts() - unused, ids);
    for (std::int32_t& id : ids) id += unused;
  };
}

// Every three steps, the hot set moves on by its own width.
Chooser rotating(const Step& s) {
  const std::uint64_t moves = s.step / 3 % static_cast<std::uint64_t>(s.experts());
  const std::uint64_t first =
      moves * static_cast<std::uint64_t>(hot_width(s)) % static_cast<std::uint64_t>(s.experts());
  return mostly_among(s, block_of_experts(static_cast<int>(first), hot_width(s), s.experts()), 4);
}

// Three steps have uniform routing. In the fourth, every second token chooses in the hot set.
Chooser burst(const Step& s) {
  if (s.step % 4 != 3) return among_all(s);
  const auto even_token = mostly_among(s, block_of_experts(0, hot_width(s), s.experts()), 2);
  return [even_token](std::int64_t token, std::span<std::int32_t> ids) { even_token(token + 1, ids); };
}

}  // namespace

Chooser make_chooser(const Workload& workload, const WorkloadShape& shape, std::uint64_t seed,
                     std::uint64_t step) {
  const Step s{workload, shape, seed, step};
  switch (workload.kind) {
    case Kind::balanced:
      return balanced(s);
    case Kind::concentrated:
      return concentrated(s);
    case Kind::zipf:
      return by_popularity(s, zipf_popularity(s));
    case Kind::lognormal:
      return by_popularity(s, lognormal_popularity(s));
    case Kind::drift:
      return by_popularity(s, drift_popularity(s));
    case Kind::collapse:
      return by_popularity(s, collapse_popularity(s));
    case Kind::w0_balanced:
      return round_robin(s);
    case Kind::w1_hot_expert_set:
    case Kind::w2_hot_rank:
      return mostly_among(s, block_of_experts(0, hot_width(s), s.experts()), 4);
    case Kind::w3_spread_hot_experts:
      return mostly_among(s, evenly_spaced_experts(hot_width(s), s.experts()), 4);
    case Kind::w4_source_ragged:
      return among_all(s);
    case Kind::w5_zero_expert_rank:
      return among_upper_half(s);
    case Kind::w6_rotating_hotspot:
      return rotating(s);
    case Kind::w7_burst:
      return burst(s);
  }
  throw InvalidArgument("scenario", "unknown", std::string(workload_names()));
}

}  // namespace evenkeel::internal
