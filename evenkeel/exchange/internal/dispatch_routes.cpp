// Makes the tables of a Dispatched, in an arena. plan/routes.h numbers what this rank sends. The index
// messages of the other ranks then say what this rank computes. The kernels in exchange/cuda/internal/
// compute the same numbers, and tests/exchange/cuda compares both. Here sizes are known, and tables are as
// large as the routing needs. On a GPU many lanes fill arrays of the largest size, without waiting for the
// host.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "evenkeel/base/carver.h"
#include "evenkeel/base/check.h"
#include "evenkeel/exchange/exchange.h"
#include "evenkeel/exchange/internal/node_forwarding.h"
#include "evenkeel/exchange/internal/slices.h"

namespace evenkeel {

namespace {

std::int64_t sum(const auto& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

// A rank computes fewer than 2^31 assignments.
std::int32_t narrow(std::int64_t positions) {
  return static_cast<std::int32_t>(positions);
}

// Tables of 4-byte numbers share one buffer, packed: separate buffers would each waste part of a cache line.
using Carver = AlignedCarver<sizeof(std::int32_t)>;

template <class T>
void take(Carver& from, std::span<T>& table, std::int64_t count) {
  table = {from.take<T>(count), static_cast<std::size_t>(count)};
}

// `all` holds one message per rank, one after the other. Returns the message of `rank`, which has `count`
// positions; earlier ranks have `before` positions in total.
std::span<std::int32_t> message_of(std::span<std::int32_t> all, RankId rank, std::int64_t before,
                                   std::int64_t count) {
  if (count == 0) return {};
  return all.subspan(static_cast<std::size_t>(before) + rank.offset(), static_cast<std::size_t>(count) + 1);
}

}  // namespace

class DispatchRoutes {
 public:
  // Numbers what this rank sends. The tables have the given lifetime; the messages live as long as this
  // object. `deal` and `nodes` must outlive it.
  DispatchRoutes(Arena& arena, Router& router, const Deal& deal, const Nodes& nodes, RankId me,
                 bool may_forward, const TopK& top_k, Lifetime lifetime)
      : deal_(deal), me_(me) {
    made_.tokens = load_.tokens = top_k.tokens;
    made_.k = top_k.k;
    load_.assignments = sum(deal.sent());
    load_.assignments_kept = deal.sent()[me.offset()];
    load_.groups = std::ssize(deal.experts_here());
    made_.positions_here = load_.positions_here = sum(deal.received());
    made_.positions_elsewhere = load_.positions_elsewhere();
    const ExchangeShape shape{.num_ranks = static_cast<int>(deal.sent().size()), .top_k = top_k.k};
    // Long-lived tables are allocated first, so that freeing the temporary ones leaves no gap.
    open_tables(arena, shape, lifetime);
    open_messages(arena, shape);
    Dispatched::PeerBegin next;
    for (RankId rank : indices<RankId>(made_.peers_.size())) {
      made_.peers_[rank.offset()] = next;
      next.in_position += narrow(deal.received()[rank.offset()]);
      if (rank != me) next.out_position += narrow(deal.sent()[rank.offset()]);
    }
    const Buffer row_of = arena.allocate(chunk_buffers::routing(load_), "routing");
    router.send(top_k.experts, top_k.k, deal, me,
                {.assignments = assignments_,
                 .tokens = made_.row_tokens_,
                 .messages = sent_,
                 .own_message = message_from(me),
                 .result_of = made_.result_slot_,
                 .first_own = narrow(made_.peer(me).in_position),
                 .first_sent = narrow(made_.positions_here),
                 .no_result = -1},
                row_of.as<std::int32_t>());
    if (!may_forward) return;
    std::vector<ForwardingRoutes::Message> to, from;
    for (RankId rank : indices<RankId>(made_.peers_.size())) {
      to.push_back(message_to(rank));
      from.push_back(message_from(rank));
    }
    forwarding_.emplace(nodes, me, made_.tokens, to, from, made_.row_tokens_);
  }

  // Adds the messages to and from all peers.
  void queue_messages(Slices& slices) {
    for (RankId rank : slices.others()) {
      const auto longer_out = forwarding_ ? forwarding_->sent(rank) : ForwardingRoutes::Message();
      const auto longer_in = forwarding_ ? forwarding_->received(rank) : std::span<std::int32_t>();
      slices.send(rank, std::as_bytes(longer_out.empty() ? message_to(rank) : longer_out));
      slices.receive(rank, std::as_writable_bytes(longer_in.empty() ? message_from(rank) : longer_in));
    }
  }

  // Call once the messages have arrived.
  Dispatched receive() {
    for (RankId rank : indices<RankId>(forwarding_ ? made_.peers_.size() : 0)) {
      const auto longer = forwarding_->received(rank), message = message_from(rank);
      if (!longer.empty()) std::copy_n(longer.begin(), message.size(), message.begin());
    }
    number_rows();
    find_row_slots();
    find_inputs();
    if (forwarding_) made_.forwarding_ = forwarding_->find(made_);
    return std::move(made_);
  }

 private:
  void open_tables(Arena& arena, const ExchangeShape& shape, Lifetime lifetime) {
    const std::int64_t choices = load_.tokens * shape.top_k;
    made_.tables_ = arena.allocate(chunk_buffers::routes(shape, load_), "routes", lifetime);
    Carver tables(made_.tables_.data());
    take(tables, made_.peers_, shape.num_ranks);
    take(tables, made_.groups_, load_.groups);
    take(tables, made_.result_slot_, choices);
    take(tables, made_.row_slot_, choices);
    take(tables, made_.row_tokens_, load_.assignments);
    take(tables, made_.input_row_, load_.positions_here);
    take(tables, made_.output_row_, load_.positions_here);
    EVENKEEL_CHECK(tables.used() == std::ssize(made_.tables_.bytes()));
  }

  void open_messages(Arena& arena, const ExchangeShape& shape) {
    messages_ = arena.allocate(chunk_buffers::messages(shape, load_), "index messages");
    Carver tables(messages_.data());
    take(tables, received_, load_.positions_here + shape.num_ranks);
    take(tables, sent_, load_.positions_elsewhere() + shape.num_ranks);
    take(tables, assignments_, load_.assignments);
    take(tables, taken_, shape.num_ranks);
    EVENKEEL_CHECK(tables.used() == std::ssize(messages_.bytes()));
  }

  // The message to or from a rank: its number of rows, then the row of each position. Empty if there are no
  // positions.
  std::span<std::int32_t> message_to(RankId rank) const {
    const Dispatched::Peer peer = made_.peer(rank);
    return message_of(sent_, rank, peer.out_position, peer.out_positions);
  }

  std::span<std::int32_t> message_from(RankId rank) const {
    const Dispatched::Peer peer = made_.peer(rank);
    return message_of(received_, rank, peer.in_position, peer.in_positions);
  }

  void number_rows() {
    for (RankId rank : indices<RankId>(made_.peers_.size())) {
      const auto in = message_from(rank), out = message_to(rank);
      made_.peers_[rank.offset()].in_row = narrow(made_.rows_here);
      made_.peers_[rank.offset()].out_row = narrow(made_.rows_elsewhere);
      if (!in.empty()) EVENKEEL_CHECK(in[0] >= 0 && in[0] < std::ssize(in));
      made_.rows_here += in.empty() ? 0 : in[0];
      made_.rows_elsewhere += out.empty() ? 0 : out[0];
    }
    made_.own_row = made_.peer(me_).in_row;
    made_.own_rows = made_.peer(me_).in_rows;
  }

  // A row number that appears for the first time in a message marks a new row.
  void find_row_slots() {
    std::ranges::fill(made_.row_slot_, -1);
    std::span<const std::int32_t> assignments = assignments_;
    const auto find = [&](std::span<const std::int32_t> message, std::int64_t first_slot,
                          std::span<const std::int32_t> new_row) {
      std::int32_t rows = 0;
      for (std::size_t i = 1; i < message.size(); ++i) {
        if (message[i] != rows) continue;
        const std::int32_t row = new_row.empty() ? rows : new_row[static_cast<std::size_t>(rows)];
        made_.row_slot_[static_cast<std::size_t>(assignments[i - 1])] = narrow(first_slot + row);
        ++rows;
      }
      assignments = assignments.subspan(message.empty() ? 0 : message.size() - 1);
    };
    for (RankId rank : indices<RankId>(made_.peers_.size())) {
      const std::int64_t first = made_.peer(rank).out_row;
      std::span<const std::int32_t> new_rows;
      if (forwarding_) new_rows = forwarding_->new_rows().subspan(static_cast<std::size_t>(first));
      find(message_to(rank), made_.rows_here + first, new_rows);
    }
    find(message_from(me_), made_.own_row, {});
  }

  void find_inputs() {
    std::int32_t end = 0;  // end of the groups so far
    const auto begin_of = [&](std::size_t group) {
      const std::int32_t begin = end;
      end += narrow(sum(deal_.arrivals(group)));
      made_.groups_[group] = {deal_.experts_here()[group], begin, end};
      return begin;
    };
    for_each_arrival(deal_.arrivals(), taken_, begin_of, [&](const Arrival& run) {
      const Dispatched::PeerBegin from = made_.peers_[run.source];
      const auto rows = message_from(RankId(run.source)).subspan(1 + run.first, run.count);
      for (std::size_t i = 0; i < run.count; ++i) {
        made_.input_row_[run.at + i] = from.in_row + rows[i];
        made_.output_row_[run.at + i] = from.in_position + narrow(static_cast<std::int64_t>(run.first + i));
      }
    });
    EVENKEEL_CHECK(end == made_.positions_here);
  }

  const Deal& deal_;
  RankId me_;
  Dispatched made_;  // until receive() gives it away
  ChunkLoad load_;   // the fields known before the messages arrive
  Buffer messages_;
  std::span<std::int32_t> received_, sent_, assignments_, taken_;  // in messages_
  std::optional<ForwardingRoutes> forwarding_;                     // with two levels
};

// Makes the routes of deal_. The memory of the index messages is freed on return.
Dispatched Exchange::exchange_indices(const TopK& top_k, Lifetime lifetime) {
  DispatchRoutes routes(arena_, router_, deal_, nodes_, comm_.rank(), nodes_.two_levels() || sum_in_nodes_,
                        top_k, lifetime);
  routes.queue_messages(*slices_);
  slices_->post(stream_, "dispatch indices").wait();
  return routes.receive();
}

}  // namespace evenkeel
