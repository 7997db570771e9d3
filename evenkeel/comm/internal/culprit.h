// Finds the rank that keeps all others waiting: follows "waits for" from rank to rank until a rank that is
// not waiting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/comm/internal/cause.h"

namespace evenkeel::internal {

// Reports whom each rank of a root waits for, while some rank waits too long.
class WaitGraph {
 public:
  virtual ~WaitGraph() = default;
  virtual int size() const = 0;
  // False if the rank does not wait; otherwise adds the ranks that it waits for.
  virtual bool list_awaited(int rank, std::vector<int>& ranks) const = 0;
  virtual bool has_left(int rank) const = 0;
  // A sentence about the rank's last operation; empty if unknown.
  virtual std::string last_message(int rank) const = 0;
};

// " Rank 3's last message: counts, 0.2 s ago, its operation number 7." A null name means that there was none.
std::string describe_last(int rank, const char* name, double seconds_ago, std::uint64_t number);

// Finds who keeps `rank` waiting in `operation`, either past the deadline or because a peer has ended.
Cause find_culprit(const WaitGraph& graph, int rank, const char* operation, double deadline_seconds);

}  // namespace evenkeel::internal
