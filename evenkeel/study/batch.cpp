#include "evenkeel/study/batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/error.h"

namespace evenkeel {

std::int64_t Batch::most_tokens() const {
  std::int64_t most = 0;
  for (RankId rank : indices<RankId>(num_ranks())) most = std::max(most, tokens_of(rank));
  return most;
}

std::int64_t most_tokens(const std::vector<Batch>& batches) {
  std::int64_t most = 1;
  for (const Batch& batch : batches) most = std::max(most, batch.most_tokens());
  return most;
}

TopK Batch::top_k_of(std::int64_t begin, std::int64_t tokens) const {
  const auto at = static_cast<std::size_t>(begin * top_k);
  const auto count = static_cast<std::size_t>(tokens * top_k);
  return {tokens, top_k, std::span(experts).subspan(at, count), std::span(router_weights).subspan(at, count)};
}

Batch Batch::on_one_rank() const {
  Batch whole = *this;
  whole.first_token = {0, num_tokens()};
  return whole;
}

Batch batch_of_workload(const std::string& name, const WorkloadShape& shape, std::uint64_t seed) {
  const Workload workload = parse_workload(name);
  const Routing routing = make_routing(workload, shape, seed, 0);
  Batch batch;
  batch.name = to_string(workload);
  batch.top_k = shape.top_k;
  for (const RankRouting& rank : routing.ranks) {
    batch.first_token.push_back(batch.first_token.back() + rank.num_tokens);
    batch.experts.insert(batch.experts.end(), rank.ids.begin(), rank.ids.end());
    batch.router_weights.insert(batch.router_weights.end(), rank.weights.begin(), rank.weights.end());
  }
  return batch;
}

namespace {

std::vector<TokenRange> chosen_ranges(const TraceInfo& info, const TraceWindow& window) {
  if (!window.sequences) return {{0, info.num_tokens}};
  const TraceWindow::Sequences& chosen = *window.sequences;
  const std::int64_t known = std::ssize(info.sequence_offsets) - 1;
  if (known < 0)
    throw InvalidArgument("--sequences", fmt::format("{} does not say where sequences begin", info.name),
                          "to leave it out");
  if (chosen.end > known)
    throw InvalidArgument("--sequences",
                          fmt::format("ends at {}, but {} has {} sequences", chosen.end, info.name, known),
                          fmt::format("an end up to {}", known));
  std::vector<TokenRange> ranges;
  for (std::int64_t s = chosen.begin; s < chosen.end; s += std::min(chosen.step, known)) {
    const auto at = static_cast<std::size_t>(s);
    ranges.push_back({info.sequence_offsets[at], info.sequence_offsets[at + 1]});
  }
  return ranges;
}

// Deals ranges to the ranks in order, without cutting any range. Returns first_token.
std::vector<std::int64_t> dealt_whole(const std::vector<TokenRange>& ranges, int num_ranks) {
  std::vector<std::int64_t> first = {0};
  std::size_t next = 0;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    const auto end = static_cast<std::size_t>((rank + 1) * std::ssize(ranges) / num_ranks);
    std::int64_t tokens = 0;
    for (; next < end; ++next) tokens += ranges[next].size();
    first.push_back(first.back() + tokens);
  }
  return first;
}

std::vector<std::int64_t> dealt_evenly(std::int64_t tokens, int num_ranks) {
  std::vector<std::int64_t> first;
  for (std::int64_t rank = 0; rank <= num_ranks; ++rank) first.push_back(tokens * rank / num_ranks);
  return first;
}

std::vector<std::int64_t> deal(const std::vector<TokenRange>& ranges, const TraceWindow& window,
                               int num_ranks) {
  std::int64_t there = 0;
  for (const TokenRange& range : ranges) there += range.size();
  if (!window.tokens_per_rank && window.sequences) return dealt_whole(ranges, num_ranks);
  if (!window.tokens_per_rank) return dealt_evenly(std::min(there, kTokensPerRank * num_ranks), num_ranks);
  if (*window.tokens_per_rank > there / num_ranks)
    throw InvalidArgument("--tokens",
                          fmt::format("{} for each of {} ranks are more than the {} tokens chosen",
                                      *window.tokens_per_rank, num_ranks, there),
                          fmt::format("0..{}", there / num_ranks));
  return dealt_evenly(*window.tokens_per_rank * num_ranks, num_ranks);
}

}  // namespace

Batch batch_of_trace(TraceReader& trace, const TraceWindow& window, int num_ranks) {
  const TraceInfo& info = trace.info();
  if (window.layer.value() >= info.num_layers)
    throw InvalidArgument(
        "--layer", fmt::format("{}, but {} has {} layers", window.layer.value(), info.name, info.num_layers),
        fmt::format("0..{}", info.num_layers - 1));
  const std::vector<TokenRange> ranges = chosen_ranges(info, window);
  Batch batch;
  batch.name = info.name;
  batch.top_k = info.top_k;
  batch.first_token = deal(ranges, window, num_ranks);
  std::int64_t missing = batch.num_tokens();
  for (TokenRange range : ranges) {
    range.end = std::min(range.end, range.begin + missing);
    missing -= range.size();
    if (range.size() == 0) continue;
    const LayerRouting routing = trace.read_layer(window.layer, range);
    batch.experts.insert(batch.experts.end(), routing.ids.begin(), routing.ids.end());
    batch.router_weights.insert(batch.router_weights.end(), routing.weights.begin(), routing.weights.end());
  }
  if (!info.has_weights)
    batch.router_weights.assign(batch.experts.size(), 1.0f / static_cast<float>(info.top_k));
  return batch;
}

}  // namespace evenkeel
