#include "tests/comm/transport.h"

#include <exception>
#include <limits>

#include "evenkeel/comm/thread/run_ranks.h"

namespace evenkeel {

int most_ranks() {
  return std::numeric_limits<int>::max();
}

void run_on(int ranks, const std::function<void(Communicator&)>& body, double deadline_seconds) {
  run_ranks(ranks, body, {.deadline_seconds = deadline_seconds});
}

Told told_on(int ranks, double deadline_seconds,
             const std::function<void(Communicator&, std::string& note)>& body) {
  Told told{std::vector<std::string>(static_cast<std::size_t>(ranks)), ""};
  try {
    run_on(
        ranks, [&](Communicator& comm) { body(comm, told.notes[comm.rank().offset()]); }, deadline_seconds);
  } catch (const std::exception& error) {
    told.thrown = error.what();
  }
  return told;
}

}  // namespace evenkeel
