// A control message between ranks of one root, outside any operation: who stops, ends or waits, and why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/comm/internal/cause.h"

namespace evenkeel::internal {

struct Notice {
  enum class Kind : std::int32_t {
    stop,          // the sender has stopped, or is stopping, for this cause
    left,          // the sender issues nothing more
    ended,         // the sender has also received all that was sent to it
    ask,           // asks whom the receiver waits for
    answer,        // the reply to `ask`
    stop_request,  // asks the receiver to stop all ranks for this cause
  };

  Kind kind = Kind::ask;
  std::uint64_t messages = 0;     // stop, left: how many messages the sender has sent to this rank
  Cause cause = {};               // stop, stop_request
  bool unresponsive = false;      // stop, stop_request: cause.peer did not answer
  bool waits = false;             // answer
  std::vector<int> awaited = {};  // answer: ranks that the sender waits for
  std::string last_message = {};  // answer
};

std::string pack(const Notice& notice);
Notice unpack(std::string_view bytes);

}  // namespace evenkeel::internal
