// Finds the rank that keeps all others waiting: from the ranks that one waits for, along what these wait for
// themselves, to one that is not waiting at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/comm/internal/cause.h"

namespace evenkeel::internal {

// Says of the ranks of a root whom each waits for, while somebody waits too long.
class Witness {
 public:
  virtual ~Witness() = default;
  virtual int size() const = 0;
  // False if the rank does not wait; otherwise adds the ranks that it waits for.
  virtual bool list_awaited(int rank, std::vector<int>& ranks) const = 0;
  virtual bool has_left(int rank) const = 0;
  // A sentence of what the rank did last, or nothing where that is not known.
  virtual std::string last_message(int rank) const = 0;
};

// " Rank 3's last message: counts, 0.2 s ago, its operation number 7." Null: there was none.
std::string describe_last(int rank, const char* name, double seconds_ago, std::uint64_t number);

// Who keeps `rank` waiting in `operation`, for longer than the deadline or for somebody who has ended.
Cause find_blame(const Witness& witness, int rank, const char* operation, double deadline_seconds);

}  // namespace evenkeel::internal
