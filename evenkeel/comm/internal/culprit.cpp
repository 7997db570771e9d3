#include "evenkeel/comm/internal/culprit.h"

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

Cause cause_of(const WaitGraph& graph, int rank, int peer, const std::string& action) {
  return {peer, -1, rank,
          fmt::format("rank {} {}; {}.{}", peer, action, others_stopped(graph.size(), peer),
                      graph.last_message(peer))};
}

}  // namespace

std::string describe_last(int rank, const char* name, double seconds_ago, std::uint64_t number) {
  if (name == nullptr) return fmt::format(" Rank {}'s last message: none.", rank);
  return fmt::format(" Rank {}'s last message: {}, {:.3g} s ago, its operation number {}.", rank, name,
                     seconds_ago, number);
}

Cause find_culprit(const WaitGraph& graph, int rank, const char* operation, double deadline_seconds) {
  std::vector<int> awaited;
  graph.list_awaited(rank, awaited);
  EVENKEEL_CHECK(!awaited.empty());
  for (int peer : awaited) {
    if (graph.has_left(peer))
      return cause_of(graph, rank, peer, fmt::format("ended before it answered in {}", operation));
  }
  const std::string action = fmt::format("did not answer in {} within {:.3g} s", operation, deadline_seconds);
  std::vector<int> visited = {rank};  // in the order of the search
  std::vector<int> further = awaited;
  for (std::size_t next = 1;; ++next) {
    for (int peer : further)
      if (std::ranges::find(visited, peer) == visited.end()) visited.push_back(peer);
    if (next == visited.size()) break;
    further.clear();
    if (!graph.list_awaited(visited[next], further)) return cause_of(graph, rank, visited[next], action);
  }
  return cause_of(graph, rank, awaited.front(), action + ", while ranks wait for each other in a circle");
}

}  // namespace evenkeel::internal
