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

RankNotes run_and_collect_notes(int ranks, double deadline_seconds,
                                const std::function<void(Communicator&, std::string& note)>& body) {
  RankNotes result{std::vector<std::string>(static_cast<std::size_t>(ranks)), ""};
  try {
    run_on(
        ranks, [&](Communicator& comm) { body(comm, result.notes[comm.rank().offset()]); }, deadline_seconds);
  } catch (const std::exception& error) {
    result.thrown = error.what();
  }
  return result;
}

}  // namespace evenkeel
