// After warm-up, operations of thread ranks allocate nothing, with or without recording. Wherever an
// allocation fails, all ranks end with an exception.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "evenkeel/comm/recording.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/device/cpu/stream.h"

namespace {
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

std::atomic<std::int64_t> allocations = 0;
std::atomic<std::int64_t> first_refused = never;  // index of the first refused allocation, from 0
std::atomic<std::int64_t> num_refused = never;

void* counted(std::size_t size) {
  const std::int64_t number = allocations++ - first_refused;
  if (number >= 0 && number < num_refused) throw std::bad_alloc();
  if (void* bytes = std::malloc(size)) return bytes;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
void operator delete(void* bytes) noexcept {
  std::free(bytes);
}
void operator delete[](void* bytes) noexcept {
  std::free(bytes);
}
void operator delete(void* bytes, std::size_t) noexcept {
  std::free(bytes);
}
void operator delete[](void* bytes, std::size_t) noexcept {
  std::free(bytes);
}

namespace evenkeel {
namespace {

constexpr int ranks = 5;

struct Buffers {
  std::vector<std::byte> out = std::vector<std::byte>(ranks * 1000);
  std::vector<std::byte> in = std::vector<std::byte>(ranks * 1000);
  std::vector<std::byte> all = std::vector<std::byte>(ranks * 100);
  std::vector<SendSlice> sends = std::vector<SendSlice>(ranks);
  std::vector<ReceiveSlice> receives = std::vector<ReceiveSlice>(ranks);
};

// Message sizes change from step to step; both ranks of a pair can compute them.
void step(Communicator& comm, Buffers& buffers, CpuStream& stream, std::size_t number) {
  const auto size = [&](std::size_t from, std::size_t to) {
    return (number * 37 + from * 5 + to * 3) % 1000;
  };
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    buffers.sends[peer] = {RankId(peer),
                           std::span(buffers.out).subspan(peer * 1000, size(comm.rank().offset(), peer))};
    buffers.receives[peer] = {RankId(peer),
                              std::span(buffers.in).subspan(peer * 1000, size(peer, comm.rank().offset()))};
  }
  const Event dispatch = comm.send_receive(buffers.sends, buffers.receives, stream, "dispatch");
  comm.all_gather(std::span(buffers.out).first(100), buffers.all, stream);
  dispatch.wait();
  std::int64_t value = 1;
  comm.all_reduce(std::span(&value, 1), Reduction::sum, stream);
  stream.synchronize();
}

TEST(Operations, AllocateNothingAfterWarmUp) {
  std::int64_t before = 0;
  std::int64_t after = 0;
  run_ranks(ranks, [&](Communicator& comm) {
    RecordingCommunicator recorded(comm);
    Buffers buffers;
    CpuStream stream;
    const std::byte mine{};
    std::byte all[ranks];
    const auto meet = [&] { comm.all_gather({&mine, 1}, all, stream, "meet").wait(); };
    for (std::size_t i = 0; i < 5; ++i) step(recorded, buffers, stream, i * 200);
    meet();
    if (comm.rank() == RankId(0)) before = allocations;
    meet();
    for (std::size_t i = 0; i < 200; ++i) step(recorded, buffers, stream, i);
    meet();
    if (comm.rank() == RankId(0)) after = allocations;
    meet();
  });
  EXPECT_GT(before, 0) << "allocations are not counted";
  EXPECT_EQ(after - before, 0);
}

// Refuses `count` allocations from number `first` on. Returns false if the step ended with an exception.
bool step_without_memory(std::int64_t first, std::int64_t count) {
  num_refused = count;
  allocations = 0;
  first_refused = first;
  bool done = false;
  try {
    run_ranks(ranks, [](Communicator& comm) {
      Buffers buffers;
      CpuStream stream;
      step(comm, buffers, stream, 1);
      comm.split(comm.rank().value() % 2);
    });
    done = true;
  } catch (const std::exception&) {
  }
  first_refused = never;
  return done;
}

TEST(RunRanks, EndsWithAnExceptionWhereverMemoryEnds) {
  std::int64_t first = 0;
  while (!step_without_memory(first, never)) ++first;
  EXPECT_GT(first, 10 * ranks);  // allocations failed once in threads, communicators and operations
}

TEST(RunRanks, EndsWithAnExceptionWhereverOneAllocationFails) {
  for (std::int64_t first = 0; first < 400; ++first) step_without_memory(first, 1);
}

}  // namespace
}  // namespace evenkeel
