// The tables of a Dispatched, made in two halves: outward from the deal and this rank's choices, inward from
// the index messages that the other ranks made in their outward half.
//
// An index message from s to r holds the number of rows that s sends to r, and then, for each assignment of s
// that r computes, by expert and in the deal's order, which of those rows it reads.
//
// These tables are the oracle of those that kernels make (exchange/cuda/internal/): the numbers are the same,
// and tests/exchange/cuda compares each. Here their sizes are known, and memory is what the routing takes;
// there many lanes fill arrays of the largest size, and nothing waits for the host.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/exchange/internal/slices.h"
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel {

class RouteBuilder {
 public:
  // The tables have the given lifetime; the messages go with the builder.
  RouteBuilder(Arena& arena, const Deal& deal, RankId me, Dispatched& routes, Lifetime lifetime)
      : arena_(arena), deal_(deal), me_(me), routes_(routes), lifetime_(lifetime) {}

  // Fills the sizes, result_slot, the tokens of rows elsewhere, and row_slot up to what only inward() knows.
  // `chosen` [E] says how many of this rank's choices are of each expert, and is used up.
  void outward(const TopK& top_k, std::span<std::int64_t> chosen);
  // Fills the rest from the messages of all ranks.
  void inward();

  // The messages to all peers, and from them.
  void queue_messages(Slices& slices);

 private:
  // The message to / from a rank: its header and positions. Empty where nothing goes.
  std::span<std::int32_t> message_to(RankId rank) { return message(messages_sent_, rank, deal_.sent()); }
  std::span<std::int32_t> message_from(RankId rank) {
    return message(messages_received_, rank, deal_.received());
  }
  static std::span<std::int32_t> message(std::span<std::int32_t> all, RankId rank,
                                         std::span<const std::int64_t> counts);
  Dispatched::PeerBegin& peer(RankId rank) { return routes_.peers_[rank.offset()]; }
  ChunkLoad load() const;
  void open_tables(const ExchangeShape& shape, const ChunkLoad& load);
  void open_messages(const ExchangeShape& shape, const ChunkLoad& load);
  void place_peers();
  // Tables that outward() needs while it runs.
  struct Scratch {
    Buffer all = {};
    std::span<std::int32_t> row_of = {};          // of each token, on the rank in question
    std::span<std::int32_t> by_expert = {};       // assignments
    std::span<std::int32_t> by_destination = {};  // the same
    std::span<std::int32_t> next = {};            // of each destination
  };
  Scratch open_scratch(const ExchangeShape& shape, const ChunkLoad& load) const;
  void sort_by_destination(const TopK& top_k, std::span<std::int64_t> chosen, const Scratch& scratch) const;
  std::int32_t number_rows(RankId rank, std::span<const std::int32_t> assignments,
                           std::span<std::int32_t> row_of);
  void number_rows_here();
  void open_groups();
  void fill_groups();
  void rebase_row_slots();

  Arena& arena_;
  const Deal& deal_;
  RankId me_;
  Dispatched& routes_;
  Lifetime lifetime_;
  Buffer messages_;
  std::span<std::int32_t> messages_received_, messages_sent_;  // within
};

}  // namespace evenkeel
