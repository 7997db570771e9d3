#include "evenkeel/exchange/internal/routes.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "evenkeel/base/carver.h"
#include "evenkeel/base/check.h"

namespace evenkeel {

namespace {

std::int64_t sum(const auto& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// A rank computes fewer than 2^31 assignments.
std::int32_t narrow(std::int64_t positions) {
  return static_cast<std::int32_t>(positions);
}

// While the number of rows here is unknown, this rank's own row r is held as kOwnRow - r.
constexpr std::int32_t kOwnRow = -2;

}  // namespace

std::span<std::int32_t> RouteBuilder::message(const Buffer& all, RankId rank,
                                              std::span<const std::int64_t> counts) {
  const auto own = static_cast<std::size_t>(counts[rank.offset()]);
  if (own == 0) return {};
  const auto before = static_cast<std::size_t>(sum(counts.first(rank.offset()))) + rank.offset();
  return all.as<std::int32_t>().subspan(before, own + 1);
}

// One behind the other: each in a buffer of its own would end in a part of a cache line.
// memory/chunk_bytes.cpp adds them up.
void RouteBuilder::open_tables(std::int64_t choices) {
  const std::int64_t own = deal_.sent()[me_.offset()];
  routes_.positions_here = sum(deal_.received());
  routes_.positions_elsewhere = sum(deal_.sent()) - own;
  const auto open = [&](std::byte* base) {
    AlignedCarver<sizeof(std::int32_t)> carver(base);
    const auto take = [&]<class T>(std::span<T>& table, std::int64_t count) {
      table = {carver.take<T>(count), static_cast<std::size_t>(count)};
    };
    take(routes_.peers_, std::ssize(deal_.sent()));
    take(routes_.groups_, std::ssize(deal_.experts_here()));
    take(routes_.result_slot_, choices);
    take(routes_.row_slot_, choices);
    take(routes_.token_elsewhere_, routes_.positions_elsewhere);
    take(routes_.token_here_, own);
    take(routes_.input_row_, routes_.positions_here);
    take(routes_.output_row_, routes_.positions_here);
    return carver.used();
  };
  routes_.tables_ = arena_.allocate(open(nullptr), "routes", lifetime_);
  open(routes_.tables_.data());
}

void RouteBuilder::open_messages() {
  const auto ranks = static_cast<std::int64_t>(deal_.sent().size());
  const auto messages = [&](std::int64_t positions) {
    return arena_.allocate_for<std::int32_t>(positions + ranks, "index messages", messages_.lifetime);
  };
  messages_.received = messages(routes_.positions_here);
  messages_.sent = messages(sum(deal_.sent()));
}

void RouteBuilder::size_peers() {
  std::int32_t in = 0;
  std::int32_t out = 0;
  for (RankId rank : indices<RankId>(deal_.sent().size())) {
    Dispatched::Peer& at = peer(rank) = {};
    at.in_position = in;
    at.in_positions = narrow(deal_.received()[rank.offset()]);
    at.out_position = out;
    at.out_positions = rank == me_ ? 0 : narrow(deal_.sent()[rank.offset()]);
    in += at.in_positions;
    out += at.out_positions;
  }
}

// This rank's assignments by expert; within one, by token and place in the top-k.
void RouteBuilder::sort_by_expert(const TopK& top_k, std::span<std::int32_t> expert_begin,
                                  std::span<std::int32_t> sorted) const {
  std::ranges::fill(expert_begin, 0);
  for (std::int32_t expert : top_k.experts)
    if (expert >= 0) ++expert_begin[static_cast<std::size_t>(expert) + 1];
  std::partial_sum(expert_begin.begin(), expert_begin.end(), expert_begin.begin());
  // Each begin moves to its end while filling; the shift back costs less than a second table.
  for (std::size_t a = 0; a < top_k.experts.size(); ++a)
    if (top_k.experts[a] >= 0)
      sorted[static_cast<std::size_t>(expert_begin[static_cast<std::size_t>(top_k.experts[a])]++)] =
          static_cast<std::int32_t>(a);
  std::shift_right(expert_begin.begin(), expert_begin.end(), 1);
  expert_begin.front() = 0;
}

// This rank's assignments by the rank that computes them; within one, by expert, then token.
void RouteBuilder::sort_by_destination(const TopK& top_k, int num_experts, std::span<std::int32_t> sorted) {
  const Buffer begins = arena_.allocate_for<std::int32_t>(num_experts + 1, "expert begins");
  const auto expert_begin = begins.as<std::int32_t>();
  const Buffer by_expert =
      arena_.allocate_for<std::int32_t>(static_cast<std::int64_t>(sorted.size()), "assignment order");
  const auto order = by_expert.as<std::int32_t>();
  sort_by_expert(top_k, expert_begin, order);

  const Buffer cursors =
      arena_.allocate_for<std::int64_t>(static_cast<std::int64_t>(deal_.sent().size()), "cursors");
  const auto next = cursors.as<std::int64_t>();
  std::exclusive_scan(deal_.sent().begin(), deal_.sent().end(), next.begin(), std::int64_t{0});
  for (ExpertId expert : indices<ExpertId>(num_experts)) {
    auto assignment = order.begin() + expert_begin[expert.offset()];
    for (const Deal::Piece& piece : deal_.pieces(expert)) {
      std::copy_n(assignment, piece.count, sorted.begin() + next[piece.rank.offset()]);
      next[piece.rank.offset()] += piece.count;
      assignment += piece.count;
    }
    EVENKEEL_CHECK(assignment == order.begin() + expert_begin[expert.offset() + 1]);
  }
}

// Gives the tokens that go to one rank their row numbers there, in order of first use.
void RouteBuilder::number_rows(RankId rank, std::span<const std::int32_t> assignments,
                               std::span<std::int32_t> row_of) {
  if (assignments.empty()) return;
  Dispatched::Peer& at = peer(rank);
  const auto message = message_to(rank);
  const auto tokens = rank == me_ ? routes_.token_here_ : routes_.token_elsewhere_;
  const std::int32_t first_row = rank == me_ ? 0 : at.out_row;
  const std::int64_t first_result = rank == me_ ? at.in_position : routes_.positions_here + at.out_position;
  std::int32_t rows = 0;
  for (std::size_t j = 0; j < assignments.size(); ++j) {
    const auto a = static_cast<std::size_t>(assignments[j]);
    const auto token = a / static_cast<std::size_t>(routes_.k);
    if (row_of[token] < 0) {
      row_of[token] = rows++;
      tokens[static_cast<std::size_t>(first_row + row_of[token])] = static_cast<std::int32_t>(token);
      routes_.row_slot_[a] = rank == me_ ? kOwnRow - row_of[token] : first_row + row_of[token];
    }
    message[j + 1] = row_of[token];
    routes_.result_slot_[a] = narrow(first_result + static_cast<std::int64_t>(j));
  }
  message[0] = rows;
  for (std::int32_t a : assignments) row_of[static_cast<std::size_t>(a / routes_.k)] = -1;
  (rank == me_ ? at.in_rows : at.out_rows) = rows;
}

void RouteBuilder::outward(const TopK& top_k, int num_experts) {
  routes_.tokens = top_k.tokens;
  routes_.k = top_k.k;
  // What stays comes first, so that what goes again leaves no gap behind.
  open_tables(std::ssize(top_k.experts));
  open_messages();
  size_peers();
  std::ranges::fill(routes_.result_slot_, -1);
  std::ranges::fill(routes_.row_slot_, -1);

  const Buffer rows = arena_.allocate_for<std::int32_t>(top_k.tokens, "row numbers");
  std::ranges::fill(rows.as<std::int32_t>(), -1);
  const Buffer by_destination = arena_.allocate_for<std::int32_t>(sum(deal_.sent()), "assignment order");
  sort_by_destination(top_k, num_experts, by_destination.as<std::int32_t>());
  std::span<const std::int32_t> rest = by_destination.as<const std::int32_t>();
  std::int32_t rows_elsewhere = 0;
  for (RankId rank : indices<RankId>(deal_.sent().size())) {
    const auto count = static_cast<std::size_t>(deal_.sent()[rank.offset()]);
    peer(rank).out_row = rows_elsewhere;
    number_rows(rank, rest.first(count), rows.as<std::int32_t>());
    rest = rest.subspan(count);
    rows_elsewhere += peer(rank).out_rows;
  }
  routes_.rows_elsewhere = rows_elsewhere;
}

void RouteBuilder::queue_messages_out(Slices& slices) {
  for (RankId rank : slices.others()) slices.send(rank, std::as_bytes(message_to(rank)));
}

void RouteBuilder::queue_messages_in(Slices& slices) {
  for (RankId rank : slices.others()) slices.receive(rank, std::as_writable_bytes(message_from(rank)));
}

void RouteBuilder::inward() {
  std::ranges::copy(message_to(me_), message_from(me_).begin());
  number_rows_here();
  rebase_row_slots();
  fill_groups();
}

void RouteBuilder::number_rows_here() {
  std::int32_t rows = 0;
  for (RankId rank : indices<RankId>(deal_.received().size())) {
    Dispatched::Peer& at = peer(rank);
    const auto message = message_from(rank);
    at.in_row = rows;
    at.in_rows = message.empty() ? 0 : message[0];
    EVENKEEL_CHECK(at.in_rows >= 0 && at.in_rows <= at.in_positions);
    rows += at.in_rows;
  }
  routes_.rows_here = rows;
  routes_.own_row = peer(me_).in_row;
  routes_.own_rows = peer(me_).in_rows;
}

void RouteBuilder::rebase_row_slots() {
  const std::int32_t own = narrow(routes_.own_row);
  const std::int32_t elsewhere = narrow(routes_.rows_here);
  for (std::int32_t& slot : routes_.row_slot_) {
    if (slot >= 0)
      slot += elsewhere;
    else if (slot <= kOwnRow)
      slot = own + (kOwnRow - slot);
  }
}

// Where each expert's positions begin; in the order of experts.
void RouteBuilder::open_groups() {
  const auto experts = deal_.experts_here();
  const auto groups = routes_.groups_;
  // Until they have their places, `begin` is 1 for those that are borrowed, and `end` the number of
  // positions.
  for (std::size_t g = 0; g < experts.size(); ++g)
    groups[g] = {experts[g], deal_.borrows(g) ? 1 : 0, narrow(sum(deal_.arrivals(g)))};
  std::ranges::sort(groups, [](const Dispatched::Group& a, const Dispatched::Group& b) {
    return std::tuple(b.begin, b.end, a.expert) < std::tuple(a.begin, a.end, b.expert);
  });
  std::int32_t position = 0;
  routes_.positions_borrowed = 0;
  for (Dispatched::Group& group : groups) {
    const std::int32_t positions = group.end;
    if (group.begin == 1) routes_.positions_borrowed += positions;
    group.begin = position;
    group.end = position += positions;
  }
  EVENKEEL_CHECK(position == routes_.positions_here);
  std::ranges::sort(groups, {}, &Dispatched::Group::expert);
}

// Messages are by expert.
void RouteBuilder::fill_groups() {
  open_groups();
  const auto groups = routes_.groups_;
  const Buffer cursors =
      arena_.allocate_for<std::int64_t>(static_cast<std::int64_t>(deal_.received().size()), "cursors");
  const auto taken = cursors.as<std::int64_t>();
  std::ranges::fill(taken, 0);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto position = static_cast<std::size_t>(groups[g].begin);
    for (RankId source : indices<RankId>(deal_.received().size())) {
      const Dispatched::Peer& from = peer(source);
      const auto message = message_from(source);
      for (std::int64_t n = deal_.arrivals(g)[source.offset()]; n > 0; --n, ++position) {
        const std::int64_t j = taken[source.offset()]++;
        routes_.input_row_[position] = from.in_row + message[static_cast<std::size_t>(j) + 1];
        routes_.output_row_[position] = narrow(from.in_position + j);
      }
    }
  }
  std::ranges::sort(groups, {}, &Dispatched::Group::begin);
}

}  // namespace evenkeel
