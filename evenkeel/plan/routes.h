// The numbering of a step's rows and positions within one process (exchange/). The tests of the tables that
// kernels make (exchange/cuda/) compare with it.
//
// Words      A position is one assignment on the rank that computes it. A row is one token's hidden state: it
//            goes to a rank once, however many of its positions are there.
// Order      Positions sent: by destination, expert, token and place in the top-k. Rows sent: by destination,
//            in the order in which positions use them first. Positions computed: by expert, source rank, and
//            the source's order of sending.
// Message    To each rank go the number of rows that it gets, then for each position which of these rows it
//            reads. Counts alone do not say this, because a token's row goes to a rank once.
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
  std::span<std::int32_t> assignments;  // [A] token * k + place of each position
  std::span<std::int32_t> tokens;       // [A] token of each row; only as many are written as there are rows
  std::span<std::int32_t> messages;     // [A - own + P] by rank; the one to this rank is the number 0 alone
  std::span<std::int32_t>
      own_message;  // [own + 1] what would be sent to this rank; empty where own rows are not numbered

  // Where each assignment's result is, [tokens * k]: this rank's own positions are numbered from first_own,
  // the others from first_sent; an assignment without an expert has no_result.
  std::span<std::int32_t> result_of;
  std::int32_t first_own = 0, first_sent = 0, no_result = 0;
};

class Router {
 public:
  // Reserves the memory for any deal of so many experts and ranks; send() does so itself.
  void reserve(int experts, int ranks) {
    cursors_.reserve(static_cast<std::size_t>(experts));
    destinations_.reserve(static_cast<std::size_t>(ranks));
  }

  // Fills the routes of this rank's choices `experts`, [tokens * k], -1 for none, dealt as `deal` says;
  // `row_of` [tokens] is overwritten. Throws InvalidArgument unless these are the choices that the deal
  // counts.
  void send(std::span<const std::int32_t> experts, int k, const Deal& deal, RankId me,
            const SentRoutes& routes, std::span<std::int32_t> row_of);

 private:
  struct Destination {
    std::int32_t begin = 0;      // its first position
    std::int32_t to_result = 0;  // added to a position, gives its result
  };
  // Where an expert's next assignment goes.
  struct Cursor {
    std::int32_t left = 0;  // left in the current piece of the deal
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

// A run of positions of one expert computed here: [first, first + count) of those that rank `source` sends.
// They are computed one after the other from place `at` on.
struct Arrival {
  std::size_t expert;
  std::size_t source;
  std::size_t first;
  std::size_t count;
  std::size_t at;
};

// Calls body(Arrival) for a deal's `arrivals` [experts here][P]; begin_of(index), called in
// ascending order, is the place where an expert's first position is computed. `taken` [P] is overwritten.
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
