// Thread ranks that share one GPU, or use one GPU each.
#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "tests/support/communicator_laws.h"
#include "tests/support/gpu.h"

namespace evenkeel {
namespace {

TEST(ThreadRanksOnGpus, KeepEveryLawOfCommunicators) {
  SKIP_WITHOUT_GPU();
  for (int ranks : {1, 2, 3, 8}) {
    run_ranks(ranks, [](Communicator& comm) {
      const int gpu = comm.rank().value() % cuda::gpu_count();
      Arena arena(Device::cuda(gpu), 1 << 20);
      CudaStream stream(gpu);
      testing::every_law(comm, arena, stream);
    });
  }
}

TEST(ThreadRanksOnGpus, NameARankThatDoesNotAnswer) {
  SKIP_WITHOUT_GPU();
  const auto body = [](Communicator& comm) {
    CudaStream stream;
    if (comm.rank().value() == 1)
      while (true) comm.throw_if_aborted("compute");
    comm.barrier(stream, "dispatch");
    try {
      stream.flush();
    } catch (const CommError& error) {
      EXPECT_EQ(error.peer(), 1);
      throw;
    }
  };
  EXPECT_THROW(run_ranks(3, body, {.deadline_seconds = 0.5}), CommError);
}

}  // namespace
}  // namespace evenkeel
