// The transport under the communicator tests. The same tests are linked once with thread ranks and once with
// MPI ranks, of which there are as many as mpirun started.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

// The largest rank count of the transport.
int most_ranks();

// Runs `body` on the first `ranks` ranks. Throws what the transport throws.
void run_on(int ranks, const std::function<void(Communicator&)>& body, double deadline_seconds = 30);

// Like run_on(), for a body that writes a note and may throw. Every rank gets the notes of all.
struct RankNotes {
  std::vector<std::string> notes;  // by rank
  std::string thrown;              // the first error's message; empty if nothing was thrown
};
RankNotes run_and_collect_notes(int ranks, double deadline_seconds,
                                const std::function<void(Communicator&, std::string& note)>& body);

}  // namespace evenkeel

#define NEEDS_RANKS(ranks) \
  if (::evenkeel::most_ranks() < (ranks)) GTEST_SKIP() << "there are fewer than " << (ranks) << " ranks"
