// The numbering of a step's rows and positions within one process (exchange/). Tests compare the tables made
// by kernels (exchange/cuda/) with it.
//
// Words      A position is one assignment on the rank that computes it. A row is one token's hidden state. It
//            goes to a rank only once, even if several of its positions are computed there.
// Order      Positions sent are ordered by destination, expert, token and index in the top-k. Rows sent are
//            ordered by destination, then by the first position that uses them. Positions computed are
//            ordered by expert, source rank, and the order in which the source sent them.
// Message    Each rank gets the number of its rows, then for each position the index of the row that it
//            reads. Counts alone do not tell this, because a token's row goes to a rank only once.
// Cost       O(assignments of this rank + positions here + E + P E') for E' experts computed here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/deal.h"

namespace evenkeel {

// What a rank sends, written to the caller's memory. A is the number of this rank's assignments, P the number
// of ranks. This rank's own positions and rows stay where they are and come last.
struct SentRoutes {
  std::span<std::int32_t> assignments;  // [A] token * k + index in the top-k, of each position
  std::span<std::int32_t> tokens;       // [A] token of each row; only as many are written as there are rows
  // [A - own + P] by rank; the message to this rank is only the number 0
  std::span<std::int32_t> messages;
  // [own + 1] what would be sent to this rank; empty if own rows are not numbered
  std::span<std::int32_t> own_message;

  // The number of each assignment's result, [tokens * k]. This rank's own positions are numbered from
  // first_own on, the others from first_sent on. An assignment without an expert has no_result.
  std::span<std::int32_t> result_of;
  std::int32_t first_own = 0, first_sent = 0, no_result = 0;
};

class Router {
 public:
  // Reserves the memory for any deal of this many experts and ranks; send() calls it.
  void reserve(int experts, int ranks) {
    cursors_.reserve(static_cast<std::size_t>(experts));
    destinations_.reserve(static_cast<std::size_t>(ranks));
  }

  // Writes the routes of this rank's chosen `experts`, [tokens * k] with -1 for no expert, dealt by `deal`.
  // Overwrites `row_of` [tokens]. Throws InvalidArgument if the choices are not those that the deal counted.
  void send(std::span<const std::int32_t> experts, int k, const Deal& deal, RankId me,
            const SentRoutes& routes, std::span<std::int32_t> row_of);

 private:
  struct Destination {
    std::int32_t begin = 0;      // this rank's first position there
    std::int32_t to_result = 0;  // added to a position, gives the number of its result
  };
  // The destination of an expert's next assignment.
  struct Cursor {
    std::int32_t left = 0;  // assignments left in the current piece of the deal
    std::int32_t position = 0;
    std::int32_t to_result = 0;
    std::span<const Deal::Piece> later_pieces;  // pieces after the current one
  };
  void open_cursors(const Deal& deal, RankId me, const SentRoutes& routes);
  void open_piece(Cursor& cursor) const;
  void place(std::span<const std::int32_t> experts, const SentRoutes& routes);

  std::vector<Destination> destinations_;  // [P]
  std::vector<Cursor> cursors_;            // [E]
};

// A run of positions of one expert computed here: [first, first + count) of the positions that rank `source`
// sends. They are computed one after the other, beginning at index `at`.
struct Arrival {
  std::size_t expert;
  std::size_t source;
  std::size_t first;
  std::size_t count;
  std::size_t at;
};

// Calls body(Arrival) for a deal's `arrivals` [experts here][P]; begin_of(index), called in ascending order,
// is the index at which an expert's first position is computed. `taken` [P] is overwritten.
template <class BeginOf, class Body>
void for_each_arrival(std::span<const std::int32_t> arrivals, std::span<std::int32_t> taken,
                      const BeginOf& begin_of, const Body& body) {
  std::ranges::fill(taken, std::int32_t{0});
  auto arrival = arrivals.begin();
  for (std::size_t expert = 0; arrival != arrivals.end(); ++expert) {
    auto at = static_cast<std::size_t>(begin_of(expert));
    for (std::size_t source = 0; source < taken.size(); ++source) {
      const auto count = static_cast<std::size_t>(*arrival++);
      if (count == 0) continue;
      body(Arrival{expert, source, static_cast<std::size_t>(taken[source]), count, at});
      taken[source] += static_cast<std::int32_t>(count);
      at += count;
    }
  }
}

}  // namespace evenkeel
