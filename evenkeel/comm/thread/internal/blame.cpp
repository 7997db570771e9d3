// Finds the rank that keeps all others waiting: from the ranks that one waits for, along what these wait for
// themselves, to one that is not waiting at all.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "evenkeel/comm/thread/internal/operation.h"
#include "evenkeel/comm/thread/internal/world.h"

namespace evenkeel::thread_comm {

namespace {

struct Suspects {
  std::vector<int> ranks;  // in the order in which they were met
  std::vector<bool> met;

  Suspects(int count, int innocent) : met(static_cast<std::size_t>(count)) { first_meeting(innocent); }
  void add(const std::vector<int>& more) {
    for (int rank : more) {
      if (first_meeting(rank)) ranks.push_back(rank);
    }
  }

 private:
  bool first_meeting(int rank) {
    const bool is_new = !met[static_cast<std::size_t>(rank)];
    met[static_cast<std::size_t>(rank)] = true;
    return is_new;
  }
};

// False if the rank does not wait; otherwise adds the ranks that it waits for.
bool list_awaited(Desk& desk, std::vector<int>& ranks) {
  const std::lock_guard lock(desk.mutex);
  if (desk.awaited == nullptr) return false;
  desk.awaited->list_absent(ranks);
  return true;
}

std::string last_message(Desk& desk) {
  const std::lock_guard lock(desk.mutex);
  if (desk.last_name == nullptr) return "none";
  return fmt::format("{}, {:.3g} s ago, its operation number {}", desk.last_name,
                     seconds_since(desk.last_time), desk.posted);
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

Cause blame(World& world, int rank, int peer, const std::string& deed) {
  return {peer, -1, rank,
          fmt::format("rank {} {}; {}. Rank {}'s last message: {}.", peer, deed,
                      others_stopped(world.size(), peer), peer, last_message(world.desk(peer)))};
}

}  // namespace

Cause find_blame(World& world, int rank, const Operation& operation) {
  std::vector<int> awaited;
  list_awaited(world.desk(rank), awaited);
  for (int peer : awaited) {
    if (!world.has_left(peer)) continue;
    return blame(world, rank, peer, fmt::format("ended before it answered in {}", operation.name()));
  }
  const std::string deed =
      fmt::format("did not answer in {} within {:.3g} s", operation.name(), world.deadline_seconds());
  Suspects suspects(world.size(), rank);
  suspects.add(awaited);
  for (std::size_t i = 0; i < suspects.ranks.size(); ++i) {
    std::vector<int> further;
    if (!list_awaited(world.desk(suspects.ranks[i]), further)) {
      return blame(world, rank, suspects.ranks[i], deed);
    }
    suspects.add(further);
  }
  return blame(world, rank, awaited.front(), deed + ", while ranks wait for each other in a circle");
}

}  // namespace evenkeel::thread_comm
