// A message between ranks of one root that is of no operation: who stops, ends or waits, and why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/comm/internal/cause.h"

namespace evenkeel::internal {

struct Notice {
  enum class Kind : std::int32_t {
    stop,     // the sender has stopped, or stops now, for this cause
    left,     // the sender issues nothing more
    ended,    // and has all that the others sent
    ask,      // whom do you wait for?
    answer,   // to that
    verdict,  // tell all to stop for this cause
  };

  Kind kind = Kind::ask;
  std::uint64_t messages = 0;     // stop, left: that the sender has sent to this rank
  Cause cause = {};               // stop, verdict
  bool silent = false;            // stop, verdict: cause.peer did not answer
  bool waits = false;             // answer
  std::vector<int> awaited = {};  // answer: ranks
  std::string last_message = {};  // answer
};

std::string pack(const Notice& notice);
Notice unpack(std::string_view bytes);

}  // namespace evenkeel::internal
