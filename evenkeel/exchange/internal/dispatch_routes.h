// The tables of a Dispatched, in an arena: plan/routes.h numbers what this rank sends, and, from the index
// messages of the others, what it computes. Kernels make the same numbers (exchange/cuda/internal/), and
// tests/exchange/cuda compares each. Here sizes are known, and memory is what the routing takes; there many
// lanes fill arrays of the largest size, and nothing waits for the host.
#pragma once

#include <cstdint>
#include <span>

#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/exchange/internal/slices.h"
#include "evenkeel/plan/routes.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel {

class DispatchRoutes {
 public:
  // Numbers what this rank sends. The tables have the given lifetime; the messages go with this object.
  // `deal` must stay.
  DispatchRoutes(Arena& arena, Router<std::int32_t>& router, const Deal& deal, RankId me, const TopK& top_k,
                 Lifetime lifetime);

  // The messages to all peers, and from them.
  void queue_messages(Slices& slices);
  // When those are here.
  Dispatched receive();

 private:
  // The message to / from a rank: the number of its rows, then one number for each position. Empty where
  // nothing goes.
  std::span<std::int32_t> message_to(RankId rank) const;
  std::span<std::int32_t> message_from(RankId rank) const;
  void open_tables(Arena& arena, const ExchangeShape& shape, Lifetime lifetime);
  void open_messages(Arena& arena, const ExchangeShape& shape);
  void number_rows();
  void find_row_slots();
  void find_inputs();

  const Deal& deal_;
  RankId me_;
  Dispatched made_;  // until receive() gives it away
  ChunkLoad load_;   // as far as it is known before the messages are
  Buffer messages_;
  std::span<std::int32_t> received_, sent_, assignments_, taken_;  // within
};

}  // namespace evenkeel
