#include "evenkeel/sim/traffic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace evenkeel {

namespace {

constexpr std::int32_t kNowhere = 0;  // the rank of an expert without assignments; never read

void sum_of_ranks(const LayerTokens& chunk, const StepPlan& plan, Traffic& traffic) {
  const auto ranks = static_cast<std::size_t>(chunk.num_ranks());
  for (std::size_t from = 0; from < ranks; ++from) {
    ChunkLoad& own = traffic.loads[from];
    own.tokens = chunk.first_token[from + 1] - chunk.first_token[from];
    for (std::size_t to = 0; to < ranks; ++to) {
      ChunkLoad& there = traffic.loads[to];
      const std::int64_t rows = traffic.rows[from * ranks + to];
      const std::int64_t positions = traffic.positions[from * ranks + to];
      own.assignments += positions;
      there.positions_here += positions;
      there.rows_here += rows;
      if (from == to) {
        own.assignments_kept = positions;
      } else {
        own.rows_elsewhere += rows;
        there.rows_received += rows;
      }
    }
  }
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const auto segments = plan.segments(expert);
    for (auto segment = segments.begin(); segment != segments.end(); ++segment)
      if (std::ranges::find(segments.begin(), segment, segment->rank, &Segment::rank) == segment)
        ++traffic.loads[segment->rank.offset()].groups;
  }
}

}  // namespace

void TrafficCounter::count(const LayerTokens& chunk, const StepPlan& whole, const StepPlan& plan,
                           const LayerPlacement& homes, Traffic& traffic) {
  const auto ranks = static_cast<std::size_t>(chunk.num_ranks());
  traffic.loads.assign(ranks, {});
  traffic.rows.assign(ranks * ranks, 0);
  traffic.positions.assign(ranks * ranks, 0);
  seen_.assign(ranks, -1);
  if (nodes_.two_levels()) {
    traffic.direct.assign(ranks * ranks, 0);
    traffic.passed_on.assign(ranks * ranks, 0);
    wanted_by_.resize(static_cast<std::size_t>(nodes_.num_nodes()));
  }
  deal(chunk.counts, plan);
  count_positions(chunk.counts, traffic);
  for (RankId source : indices<RankId>(ranks)) {
    if (chunk.has_tokens()) {
      count_rows(chunk, source, traffic);
      continue;
    }
    const std::int64_t tokens = chunk.tokens_of(source);
    for (std::size_t i = source.offset() * ranks; i < (source.offset() + 1) * ranks; ++i)
      traffic.rows[i] = std::min(traffic.positions[i], tokens);
    if (nodes_.two_levels()) estimate_passed_on(source, tokens, traffic);
  }
  count_split(chunk.counts, whole, homes, traffic);
  sum_of_ranks(chunk, plan, traffic);
}

// Stores the rank of each expert that has one segment. For every other expert, stores its pieces by source
// rank.
void TrafficCounter::deal(const Counts& counts, const StepPlan& plan) {
  const auto ranks = static_cast<std::size_t>(counts.num_ranks());
  rank_of_.assign(static_cast<std::size_t>(plan.num_experts()), kNowhere);
  unsplit_ranges_.clear();
  split_experts_.clear();
  pieces_.clear();
  piece_begin_.assign(1, 0);
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const auto segments = plan.segments(expert);
    if (segments.size() == 1) {
      const std::int32_t rank = segments.front().rank.value();
      rank_of_[expert.offset()] = rank;
      if (unsplit_ranges_.empty() || unsplit_ranges_.back().rank != rank ||
          unsplit_ranges_.back().end != expert.offset())
        unsplit_ranges_.push_back({rank, expert.offset(), expert.offset()});
      ++unsplit_ranges_.back().end;
    } else if (segments.size() > 1) {
      rank_of_[expert.offset()] = -1 - static_cast<std::int32_t>(split_experts_.size());
      split_experts_.push_back(expert);
      deal_split(counts, expert, segments, ranks);
    }
  }
}

// Deals the assignments of one expert, then sorts its pieces by source rank.
void TrafficCounter::deal_split(const Counts& counts, ExpertId expert, std::span<const Segment> segments,
                                std::size_t ranks) {
  split_deal_.begin(segments, ranks);
  moves_.clear();
  from_.assign(ranks + 1, 0);
  split_deal_.deal([&](RankId source) { return counts.at(source, expert); },
                   [&](RankId from, RankId to, std::int64_t count) {
                     if (count == 0) return;
                     moves_.push_back({from.value(), {to.value(), count}});
                     ++from_[from.offset() + 1];
                   });
  const std::size_t first = pieces_.size();
  pieces_.resize(first + moves_.size());
  for (std::size_t source = 0; source < ranks; ++source) {
    from_[source + 1] += from_[source];
    piece_begin_.push_back(first + from_[source + 1]);
  }
  for (const Move& move : moves_) pieces_[first + from_[static_cast<std::size_t>(move.from)]++] = move.piece;
}

void TrafficCounter::count_positions(const Counts& counts, Traffic& traffic) const {
  const auto ranks = static_cast<std::size_t>(counts.num_ranks());
  for (RankId source : indices<RankId>(ranks)) {
    std::int64_t* const sent = traffic.positions.data() + source.offset() * ranks;
    const auto row = counts.row(source);
    for (const ExpertRange& range : unsplit_ranges_)
      for (std::size_t expert = range.begin; expert < range.end; ++expert) sent[range.rank] += row[expert];
    for (std::size_t split = 0; split < split_experts_.size(); ++split)
      for (const Piece& piece : pieces_of(split, source)) sent[piece.rank] += piece.count;
  }
}

// Counts the rows that `source` sends. A token's row is sent to a rank only once.
void TrafficCounter::count_rows(const LayerTokens& chunk, RankId source, Traffic& traffic) {
  const auto ranks = static_cast<std::size_t>(chunk.num_ranks());
  const auto k = static_cast<std::size_t>(chunk.top_k);
  std::int64_t* const rows = traffic.rows.data() + source.offset() * ranks;
  cursors_.clear();
  for (std::size_t split = 0; split < split_experts_.size(); ++split)
    cursors_.push_back({pieces_of(split, source)});
  seen_.assign(ranks, -1);
  const std::int32_t* at =
      chunk.experts.data() + static_cast<std::size_t>(chunk.first_token[source.offset()]) * k;
  const std::int64_t tokens = chunk.tokens_of(source);
  for (std::int64_t token = 0; token < tokens; ++token, at += k) {
    for (std::size_t i = 0; i < k; ++i) {
      if (at[i] < 0) continue;
      std::int32_t to = rank_of_[static_cast<std::size_t>(at[i])];
      if (to < 0) to = cursors_[static_cast<std::size_t>(-1 - to)].next();
      std::int64_t& last = seen_[static_cast<std::size_t>(to)];
      rows[to] += last != token;
      if (last != token && nodes_.two_levels())
        wanted_by_[static_cast<std::size_t>(nodes_.node_of(RankId(to)))] |=
            1U << nodes_.index_in_node(RankId(to));
      last = token;
    }
    if (nodes_.two_levels()) pass_on(source, traffic);
  }
}

// Rows that do not cross the link are assumed to be passed on by the next rank of the node.
void TrafficCounter::estimate_passed_on(RankId source, std::int64_t tokens, Traffic& traffic) const {
  const auto ranks = static_cast<std::size_t>(nodes_.num_ranks());
  const std::int64_t* const rows = traffic.rows.data() + source.offset() * ranks;
  for (int node = 0; node < nodes_.num_nodes(); ++node) {
    double all = 0,
           unwanted = 1;  // rows to the node's ranks; share of tokens wanted by none of them
    for (const RankId rank : nodes_.members(node)) {
      all += static_cast<double>(rows[rank.offset()]);
      unwanted *= 1 - static_cast<double>(rows[rank.offset()]) /
                          static_cast<double>(std::max<std::int64_t>(tokens, 1));
    }
    if (all == 0) continue;
    const bool is_own = node == nodes_.node_of(source);
    const double over_link = is_own ? 1 : static_cast<double>(tokens) * (1 - unwanted) / all;
    const auto members = nodes_.members(node);
    for (std::size_t place = 0; place < members.size(); ++place) {
      const std::size_t to = members[place].offset();
      const auto direct = static_cast<std::int64_t>(std::llround(static_cast<double>(rows[to]) * over_link));
      traffic.direct[source.offset() * ranks + to] = direct;
      if (direct == rows[to]) continue;
      const RankId from = members[(place + 1) % members.size()];
      traffic.passed_on[from.offset() * ranks + to] += rows[to] - direct;
    }
  }
}

// Counts the row of one token for the ranks in wanted_by_. Ranks in the source's node get it directly, ranks
// in other nodes through a gateway.
void TrafficCounter::pass_on(RankId source, Traffic& traffic) {
  const auto ranks = static_cast<std::size_t>(nodes_.num_ranks());
  for (int node = 0; node < nodes_.num_nodes(); ++node) {
    std::uint32_t left = std::exchange(wanted_by_[static_cast<std::size_t>(node)], 0U);
    if (left == 0) continue;
    const auto members = nodes_.members(node);
    const bool is_own = node == nodes_.node_of(source);
    const RankId gateway =
        members[static_cast<std::size_t>(Nodes::gateway(left, nodes_.index_in_node(source)))];
    for (; left != 0; left &= left - 1) {
      const RankId to = members[static_cast<std::size_t>(std::countr_zero(left))];
      if (is_own || to == gateway)
        ++traffic.direct[source.offset() * ranks + to.offset()];
      else
        ++traffic.passed_on[gateway.offset() * ranks + to.offset()];
    }
  }
}

// Counts, for each rank, the positions of its own tokens at experts that the step's plan splits.
void TrafficCounter::count_split(const Counts& counts, const StepPlan& whole, const LayerPlacement& homes,
                                 Traffic& traffic) const {
  for (ExpertId expert : indices<ExpertId>(whole.num_experts())) {
    if (!whole.splits(expert, homes)) continue;
    const std::int32_t only = rank_of_[expert.offset()];
    for (RankId rank : indices<RankId>(counts.num_ranks())) {
      std::int64_t own = 0;
      if (only >= 0)
        own = only == rank.value() ? counts.at(rank, expert) : 0;
      else
        for (const Piece& piece : pieces_of(static_cast<std::size_t>(-1 - only), rank))
          if (piece.rank == rank.value()) own += piece.count;
      traffic.loads[rank.offset()].own_split += own;
      traffic.loads[rank.offset()].own_runs += own > 0;
    }
  }
}

}  // namespace evenkeel
