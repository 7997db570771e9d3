// NCCL with one rank per GPU, on all GPUs of the machine; and the error on a machine without a GPU.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/nccl/nccl_ranks.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "tests/support/communicator_laws.h"
#include "tests/support/gpu.h"

namespace evenkeel {
namespace {

TEST(NcclRanks, SayWhyTheyCannotBe) {
  const int beyond = cuda::gpu_count();
  const auto body = [&](Communicator& comm) { make_nccl_communicator(comm, beyond); };
  EXPECT_THROW(run_ranks(1, body), Unsupported);
}

TEST(NcclRanks, KeepEveryLawOfCommunicators) {
  SKIP_WITHOUT_GPU();
  run_ranks(cuda::gpu_count(), [](Communicator& control) {
    const int gpu = control.rank().value();
    const std::unique_ptr<Communicator> comm = make_nccl_communicator(control, gpu);
    Arena arena(Device::cuda(gpu), 1 << 20);
    CudaStream stream(gpu);
    testing::every_law(*comm, arena, stream);
  });
}

TEST(NcclRanks, RefuseAStreamOfTheCpu) {
  SKIP_WITHOUT_GPU();
  run_ranks(1, [](Communicator& control) {
    const std::unique_ptr<Communicator> comm = make_nccl_communicator(control, 0);
    CpuStream stream;
    EXPECT_THROW(comm->barrier(stream), InvalidArgument);
  });
}

TEST(NcclRanks, StopWithTheCauseOnceAnyoneAborts) {
  SKIP_WITHOUT_GPU();
  const auto body = [](Communicator& control) {
    const std::unique_ptr<Communicator> comm = make_nccl_communicator(control, control.rank().value());
    CudaStream stream(control.rank().value());
    if (control.rank().value() == 0) comm->abort("enough");
    while (true) comm->barrier(stream).wait();
  };
  try {
    run_ranks(cuda::gpu_count(), body);
    FAIL() << "all ranks went on";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("enough"), std::string::npos);
  }
}

TEST(NcclRanks, NameARankThatDoesNotAnswer) {
  if (cuda::gpu_count() < 2) GTEST_SKIP() << "needs two GPUs, found " << cuda::gpu_count();
  const auto body = [](Communicator& control) {
    const int gpu = control.rank().value();
    const std::unique_ptr<Communicator> comm =
        make_nccl_communicator(control, gpu, {.deadline_seconds = 0.5});
    CudaStream stream(gpu);
    if (gpu == 1)
      while (true) control.throw_if_aborted("compute");
    try {
      comm->barrier(stream, "dispatch").wait();
    } catch (const CommError& error) {
      EXPECT_EQ(error.peer(), 1);
      throw;
    }
  };
  EXPECT_THROW(run_ranks(cuda::gpu_count(), body, {.deadline_seconds = 0.5}), CommError);
}

}  // namespace
}  // namespace evenkeel
