// The order of a pass with two chunks in flight.
//
// Problem    A rank should find what its peers send when it wants it, though no two ranks are at the same
//            place.
// Method     Each chunk is computed in two halves. Between them the chunk before comes to its end, since its
//            results had a half to come home, and the next one departs, whose rows then have a half to come.
//            So ranks that are less than half a chunk apart do not wait for each other, and no third chunk is
//            alive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "evenkeel/exchange/dispatched.h"

namespace evenkeel::internal {

// The position before which half of a chunk's work lies, where a group costs so many positions besides its
// own.
inline std::int64_t middle_of(std::span<const Dispatched::Group> groups, std::int64_t positions,
                              std::int64_t positions_a_group) {
  std::int64_t left = (positions + positions_a_group * std::ssize(groups)) / 2;
  for (const Dispatched::Group& group : groups) {
    left -= positions_a_group;
    const std::int64_t rows = group.end - group.begin;
    if (left < rows) return group.begin + std::max<std::int64_t>(left, 0);
    left -= rows;
  }
  return positions;
}

// Pass: depart(i), expect(i), arrive(i), compute(i, half), send_home(i), finish(i) of chunk i; chunks i and
// i + 2 may use the same memory. `meanwhile` is done while the first chunk travels.
template <class Pass, class Meanwhile>
void overlap_chunks(std::size_t chunks, Pass& pass, const Meanwhile& meanwhile) {
  pass.depart(0);
  meanwhile();
  pass.expect(0);
  pass.arrive(0);
  for (std::size_t i = 0; i < chunks; ++i) {
    const bool last = i + 1 == chunks;
    pass.compute(i, 0);
    if (i > 0) pass.finish(i - 1);
    if (!last) pass.depart(i + 1);
    pass.compute(i, 1);
    if (!last) pass.expect(i + 1);
    pass.send_home(i);
    if (!last) pass.arrive(i + 1);
  }
  pass.finish(chunks - 1);
}

}  // namespace evenkeel::internal
