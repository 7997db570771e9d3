// Which rank is blamed when ranks wait for devices.
#include "evenkeel/comm/progress.h"

#include <gtest/gtest.h>

#include <string>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/run_ranks.h"

namespace evenkeel {
namespace {

constexpr ThreadOptions kSoon{.deadline_seconds = 0.3};

// The error message of each of four ranks. `each` reports a rank's progress and returns whether the rank then
// calls find_culprit().
std::vector<std::string> blames(const std::function<bool(Progress&, int)>& each, std::vector<int>& peers) {
  std::vector<std::string> messages(4);
  peers.assign(4, -2);
  const auto body = [&](Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank().value());
    Progress progress(comm);
    const bool asks = each(progress, comm.rank().value());
    try {
      if (asks) progress.find_culprit(1.5);
      while (true) comm.throw_if_aborted("compute");
    } catch (const CommError& error) {
      messages[me] = error.what();
      peers[me] = error.peer();
      throw;
    }
  };
  EXPECT_THROW(run_ranks(4, body, kSoon), CommError);
  return messages;
}

TEST(Progress, BlamesTheRankThatDoesNotAskAsWell) {
  std::vector<int> peers;
  const auto messages = blames(
      [](Progress& progress, int rank) {
        progress.count_operation("dispatch");
        return rank != 2;
      },
      peers);
  EXPECT_NE(messages[0].find("rank 2 did not answer in dispatch"), std::string::npos) << messages[0];
  for (int rank : {0, 1, 3}) EXPECT_EQ(peers[static_cast<std::size_t>(rank)], 2);
}

TEST(Progress, BlamesTheRankThatHasHandedOverLeast) {
  std::vector<int> peers;
  const auto messages = blames(
      [](Progress& progress, int rank) {
        for (int i = 0; i < (rank == 1 ? 4 : 7); ++i) progress.count_operation("combine");
        return true;
      },
      peers);
  for (const std::string& message : messages)
    EXPECT_EQ(message, "combine did not end within 1.5 s: rank 1 has enqueued 4 operations, others 7");
  EXPECT_EQ(peers, (std::vector<int>{1, 1, 1, 1}));
}

TEST(Progress, BlamesNobodyWhereAllAreAsFar) {
  std::vector<int> peers;
  const auto messages = blames(
      [](Progress& progress, int) {
        progress.count_operation("dispatch");
        return true;
      },
      peers);
  EXPECT_NE(messages[3].find("though all ranks take part"), std::string::npos) << messages[3];
  EXPECT_EQ(peers, (std::vector<int>{-1, -1, -1, -1}));
}

TEST(Progress, EndsAllRanksWithTheCauseOfOne) {
  run_ranks(3, [&](Communicator& comm) {
    try {
      Progress progress(comm);
      progress.count_operation("dispatch");
      if (comm.rank().value() == 1) progress.fail("NCCL failed in ncclSend: unhandled system error", 0);
      while (true) progress.throw_if_aborted();
    } catch (const CommError& error) {
      EXPECT_EQ(error.peer(), 1);
      EXPECT_NE(std::string(error.what()).find("unhandled system error"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace evenkeel
