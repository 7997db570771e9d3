#include "evenkeel/comm/internal/blame.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/check.h"

namespace evenkeel::internal {

namespace {

std::string range(int first, int last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

// "ranks 0-2 and 4-7 have stopped".
std::string others_stopped(int count, int rank) {
  if (count == 1) return "it was alone";
  const std::string before = rank > 0 ? range(0, rank - 1) : "";
  const std::string after = rank < count - 1 ? range(rank + 1, count - 1) : "";
  const std::string both = before.empty() ? after : after.empty() ? before : before + " and " + after;
  return count == 2 ? fmt::format("rank {} has stopped", both) : fmt::format("ranks {} have stopped", both);
}

Cause blame(const Witness& witness, int rank, int peer, const std::string& action) {
  return {peer, -1, rank,
          fmt::format("rank {} {}; {}.{}", peer, action, others_stopped(witness.size(), peer),
                      witness.last_message(peer))};
}

}  // namespace

std::string describe_last(int rank, const char* name, double seconds_ago, std::uint64_t number) {
  if (name == nullptr) return fmt::format(" Rank {}'s last message: none.", rank);
  return fmt::format(" Rank {}'s last message: {}, {:.3g} s ago, its operation number {}.", rank, name,
                     seconds_ago, number);
}

Cause find_blame(const Witness& witness, int rank, const char* operation, double deadline_seconds) {
  std::vector<int> awaited;
  witness.list_awaited(rank, awaited);
  EVENKEEL_CHECK(!awaited.empty());
  for (int peer : awaited) {
    if (witness.has_left(peer))
      return blame(witness, rank, peer, fmt::format("ended before it answered in {}", operation));
  }
  const std::string action = fmt::format("did not answer in {} within {:.3g} s", operation, deadline_seconds);
  std::vector<int> met = {rank};  // in the order of the search
  std::vector<int> further = awaited;
  for (std::size_t next = 1;; ++next) {
    for (int peer : further)
      if (std::ranges::find(met, peer) == met.end()) met.push_back(peer);
    if (next == met.size()) break;
    further.clear();
    if (!witness.list_awaited(met[next], further)) return blame(witness, rank, met[next], action);
  }
  return blame(witness, rank, awaited.front(), action + ", while ranks wait for each other in a circle");
}

}  // namespace evenkeel::internal
