// What the communicator's suite runs on: the same tests are linked with the transport of threads and with
// that of MPI, which has as many ranks as mpirun has started processes.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

// That the transport has.
int most_ranks();

// On the transport's first `ranks` ranks. Throws as the transport does.
void run_on(int ranks, const std::function<void(Communicator&)>& body, double deadline_seconds = 30);

// The same, of bodies that note something and may throw: what each rank noted, known everywhere.
struct Told {
  std::vector<std::string> notes;  // by rank
  std::string thrown;              // the message that came first; empty where nothing was thrown
};
Told told_on(int ranks, double deadline_seconds,
             const std::function<void(Communicator&, std::string& note)>& body);

}  // namespace evenkeel

#define NEEDS_RANKS(ranks) \
  if (::evenkeel::most_ranks() < (ranks)) GTEST_SKIP() << "there are fewer than " << (ranks) << " ranks"
