#include "evenkeel/exchange/internal/routes.h"

#include <algorithm>
#include <functional>
#include <numeric>

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

// Cuts a buffer into tables of 4-byte numbers, one behind the other, to its end: each in a buffer of its own
// would end in a part of a cache line.
class Tables {
 public:
  explicit Tables(const Buffer& all) : carver_(all.data()), bytes_(std::ssize(all.bytes())) {}
  template <class T>
  void take(std::span<T>& table, std::int64_t count) {
    table = {carver_.take<T>(count), static_cast<std::size_t>(count)};
  }
  void require_end() const { EVENKEEL_CHECK(carver_.used() == bytes_); }

 private:
  AlignedCarver<sizeof(std::int32_t)> carver_;
  std::int64_t bytes_;
};

}  // namespace

std::span<std::int32_t> RouteBuilder::message(std::span<std::int32_t> all, RankId rank,
                                              std::span<const std::int64_t> counts) {
  const auto own = static_cast<std::size_t>(counts[rank.offset()]);
  if (own == 0) return {};
  const auto before = static_cast<std::size_t>(sum(counts.first(rank.offset()))) + rank.offset();
  return all.subspan(before, own + 1);
}

// As far as it is known before the messages are.
ChunkLoad RouteBuilder::load() const {
  ChunkLoad load;
  load.tokens = routes_.tokens;
  load.assignments = sum(deal_.sent());
  load.assignments_kept = deal_.sent()[me_.offset()];
  load.positions_here = sum(deal_.received());
  load.groups = std::ssize(deal_.experts_here());
  return load;
}

void RouteBuilder::open_tables(const ExchangeShape& shape, const ChunkLoad& load) {
  const std::int64_t choices = load.tokens * shape.top_k;
  routes_.positions_here = load.positions_here;
  routes_.positions_elsewhere = load.positions_elsewhere();
  routes_.tables_ = arena_.allocate(chunk_buffers::routes(shape, load), "routes", lifetime_);
  Tables tables(routes_.tables_);
  tables.take(routes_.peers_, shape.num_ranks);
  tables.take(routes_.groups_, load.groups);
  tables.take(routes_.result_slot_, choices);
  tables.take(routes_.row_slot_, choices);
  tables.take(routes_.token_elsewhere_, load.positions_elsewhere());
  tables.take(routes_.token_here_, load.assignments_kept);
  tables.take(routes_.input_row_, load.positions_here);
  tables.take(routes_.output_row_, load.positions_here);
  tables.require_end();
}

void RouteBuilder::open_messages(const ExchangeShape& shape, const ChunkLoad& load) {
  messages_ = arena_.allocate(chunk_buffers::messages(shape, load), "index messages");
  Tables tables(messages_);
  tables.take(messages_received_, load.positions_here + shape.num_ranks);
  tables.take(messages_sent_, load.assignments + shape.num_ranks);
  tables.require_end();
}

RouteBuilder::Scratch RouteBuilder::open_scratch(const ExchangeShape& shape, const ChunkLoad& load) const {
  Scratch scratch{.all = arena_.allocate(chunk_buffers::routing(shape, load), "routing")};
  Tables tables(scratch.all);
  tables.take(scratch.row_of, load.tokens);
  tables.take(scratch.by_expert, load.assignments);
  tables.take(scratch.by_destination, load.assignments);
  tables.take(scratch.next, shape.num_ranks);
  tables.require_end();
  return scratch;
}

void RouteBuilder::place_peers() {
  std::int32_t in = 0;
  std::int32_t out = 0;
  for (RankId rank : indices<RankId>(deal_.sent().size())) {
    peer(rank) = {.in_position = in, .out_position = out};
    in += narrow(deal_.received()[rank.offset()]);
    if (rank != me_) out += narrow(deal_.sent()[rank.offset()]);
  }
}

// This rank's assignments by the rank that computes them; within one, by expert, then token and place in the
// top-k.
void RouteBuilder::sort_by_destination(const TopK& top_k, std::span<std::int64_t> chosen,
                                       const Scratch& scratch) const {
  // Each expert's count becomes its begin, and moves to its end while filling.
  std::exclusive_scan(chosen.begin(), chosen.end(), chosen.begin(), std::int64_t{0});
  for (std::size_t a = 0; a < top_k.experts.size(); ++a)
    if (const std::int32_t expert = top_k.experts[a]; expert >= 0)
      scratch.by_expert[static_cast<std::size_t>(chosen[static_cast<std::size_t>(expert)]++)] =
          static_cast<std::int32_t>(a);

  std::transform_exclusive_scan(deal_.sent().begin(), deal_.sent().end(), scratch.next.begin(),
                                std::int32_t{0}, std::plus(), narrow);
  auto assignment = scratch.by_expert.begin();
  for (ExpertId expert : indices<ExpertId>(chosen.size())) {
    for (const Deal::Piece& piece : deal_.pieces(expert)) {
      std::int32_t& next = scratch.next[piece.rank.offset()];
      std::copy_n(assignment, piece.count, scratch.by_destination.begin() + next);
      next += narrow(piece.count);
      assignment += piece.count;
    }
    EVENKEEL_CHECK(assignment == scratch.by_expert.begin() + chosen[expert.offset()]);
  }
}

// Gives the tokens that go to one rank their row numbers there, in order of first use; returns how many.
std::int32_t RouteBuilder::number_rows(RankId rank, std::span<const std::int32_t> assignments,
                                       std::span<std::int32_t> row_of) {
  if (assignments.empty()) return 0;
  const Dispatched::PeerBegin& at = peer(rank);
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
  return rows;
}

void RouteBuilder::outward(const TopK& top_k, std::span<std::int64_t> chosen) {
  routes_.tokens = top_k.tokens;
  routes_.k = top_k.k;
  const ExchangeShape shape{.num_ranks = static_cast<int>(deal_.sent().size()), .top_k = top_k.k};
  const ChunkLoad load = this->load();
  // Tables that stay come first, so that the memory of those that go again leaves no gap behind.
  open_tables(shape, load);
  open_messages(shape, load);
  place_peers();
  std::ranges::fill(routes_.result_slot_, -1);
  std::ranges::fill(routes_.row_slot_, -1);

  const Scratch scratch = open_scratch(shape, load);
  std::ranges::fill(scratch.row_of, -1);
  sort_by_destination(top_k, chosen, scratch);
  std::span<const std::int32_t> rest = scratch.by_destination;
  std::int32_t rows_elsewhere = 0;
  for (RankId rank : indices<RankId>(deal_.sent().size())) {
    const auto count = static_cast<std::size_t>(deal_.sent()[rank.offset()]);
    peer(rank).out_row = rows_elsewhere;
    const std::int32_t rows = number_rows(rank, rest.first(count), scratch.row_of);
    if (rank != me_) rows_elsewhere += rows;
    rest = rest.subspan(count);
  }
  routes_.rows_elsewhere = rows_elsewhere;
}

void RouteBuilder::queue_messages(Slices& slices) {
  for (RankId rank : slices.others()) {
    slices.send(rank, std::as_bytes(message_to(rank)));
    slices.receive(rank, std::as_writable_bytes(message_from(rank)));
  }
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
    const auto message = message_from(rank);
    const std::int32_t in_rows = message.empty() ? 0 : message[0];
    EVENKEEL_CHECK(in_rows >= 0 && in_rows <= deal_.received()[rank.offset()]);
    peer(rank).in_row = rows;
    rows += in_rows;
  }
  routes_.rows_here = rows;
  routes_.own_row = routes_.peer(me_).in_row;
  routes_.own_rows = routes_.peer(me_).in_rows;
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

// Where each expert's positions begin.
void RouteBuilder::open_groups() {
  const auto experts = deal_.experts_here();
  std::int32_t position = 0;
  for (std::size_t g = 0; g < experts.size(); ++g) {
    const std::int32_t end = position + narrow(sum(deal_.arrivals(g)));
    routes_.groups_[g] = {experts[g], position, end};
    position = end;
  }
  EVENKEEL_CHECK(position == routes_.positions_here);
}

// Messages are by expert.
void RouteBuilder::fill_groups() {
  open_groups();
  const auto groups = routes_.groups_;
  const Buffer cursors = arena_.allocate_for<std::int32_t>(std::ssize(deal_.received()), "cursors");
  const auto taken = cursors.as<std::int32_t>();
  std::ranges::fill(taken, 0);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto position = static_cast<std::size_t>(groups[g].begin);
    for (RankId source : indices<RankId>(deal_.received().size())) {
      const Dispatched::PeerBegin& from = peer(source);
      const auto message = message_from(source);
      for (std::int64_t n = deal_.arrivals(g)[source.offset()]; n > 0; --n, ++position) {
        const std::int32_t j = taken[source.offset()]++;
        routes_.input_row_[position] = from.in_row + message[static_cast<std::size_t>(j) + 1];
        routes_.output_row_[position] = from.in_position + j;
      }
    }
  }
}

}  // namespace evenkeel
