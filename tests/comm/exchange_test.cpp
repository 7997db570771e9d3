#include <gtest/gtest.h>

#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel {
namespace {

TEST(Smoke, Ring) {
  for (int ranks : {1, 2, 3, 8, 64, 128}) {
    run_ranks(ranks, [&](Communicator& comm) {
      std::vector<int> in(100), out(100, comm.rank().value());
      std::vector<int> all(static_cast<std::size_t>(ranks) * 100);
      CpuStream stream;
      for (int i = 0; i < 20; ++i) {
        const SendSlice send{RankId((comm.rank().value() + 1) % ranks), std::as_bytes(std::span(out))};
        const ReceiveSlice receive{RankId((comm.rank().value() + ranks - 1) % ranks),
                                   std::as_writable_bytes(std::span(in))};
        comm.send_receive(std::span(&send, 1), std::span(&receive, 1), stream, "ring").wait();
        EXPECT_EQ(in[99], receive.peer.value());
        comm.all_gather(std::as_bytes(std::span(out)), std::as_writable_bytes(std::span(all)), stream).wait();
        for (int r = 0; r < ranks; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r) * 100 + 7], r);
      }
    });
  }
}

}  // namespace
}  // namespace evenkeel
