// Finds the rank that keeps all others waiting: from the ranks that one waits for, along what these wait for
// themselves, to one that is not waiting at all.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "evenkeel/comm/thread/internal/operation.h"
#include "evenkeel/comm/thread/internal/world.h"

namespace evenkeel::internal {

namespace {

// False if the rank does not wait; otherwise adds the ranks that it waits for.
bool list_awaited(Mailbox& mailbox, std::vector<int>& ranks) {
  const std::lock_guard lock(mailbox.mutex);
  if (mailbox.awaited == nullptr) return false;
  mailbox.awaited->list_absent(ranks);
  return true;
}

std::string last_message(Mailbox& mailbox) {
  const std::lock_guard lock(mailbox.mutex);
  if (mailbox.last_name == nullptr) return "none";
  return fmt::format("{}, {:.3g} s ago, its operation number {}", mailbox.last_name,
                     seconds_since(mailbox.last_time), mailbox.posted);
}

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

Cause blame(World& world, int rank, int peer, const std::string& action) {
  return {peer, -1, rank,
          fmt::format("rank {} {}; {}. Rank {}'s last message: {}.", peer, action,
                      others_stopped(world.size(), peer), peer, last_message(world.mailbox(peer)))};
}

}  // namespace

Cause find_blame(World& world, int rank, const Operation& operation) {
  std::vector<int> awaited;
  list_awaited(world.mailbox(rank), awaited);
  for (int peer : awaited) {
    if (!world.has_left(peer)) continue;
    return blame(world, rank, peer, fmt::format("ended before it answered in {}", operation.name()));
  }
  const std::string action =
      fmt::format("did not answer in {} within {:.3g} s", operation.name(), world.deadline_seconds());
  std::vector<int> met = {rank};  // in this order
  std::vector<int> further = awaited;
  for (std::size_t next = 1;; ++next) {
    for (int peer : further)
      if (std::ranges::find(met, peer) == met.end()) met.push_back(peer);
    if (next == met.size()) break;
    further.clear();
    if (!list_awaited(world.mailbox(met[next]), further)) return blame(world, rank, met[next], action);
  }
  return blame(world, rank, awaited.front(), action + ", while ranks wait for each other in a circle");
}

}  // namespace evenkeel::internal
