// The cost of messages between thread ranks, beside a plain memcpy of the same bytes. Reports, for one
// operation, the wall time and the CPU time of one rank (mean over ranks). Critical paths are made of such
// CPU times.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "evenkeel/base/clock.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel {
namespace {

using Bytes = std::vector<std::byte>;

// Runs `operation(comm, stream)` on all ranks in each iteration; rank 0 counts iterations for all ranks.
template <class MakeOperation>
void on_ranks(benchmark::State& state, int ranks, MakeOperation make_operation) {
  std::vector<double> cpu(static_cast<std::size_t>(ranks));
  std::atomic<bool> again = true;
  run_ranks(ranks, [&](Communicator& comm) {
    CpuStream stream;
    auto operation = make_operation(comm);
    for (int i = 0; i < 3; ++i) operation(stream);
    // Operations between two checks of `state`, so that agreeing to continue costs little.
    constexpr int batch = 16;
    for (;;) {
      if (comm.rank() == RankId(0)) again = state.KeepRunningBatch(batch);
      std::int64_t go_on = again ? 1 : 0;
      comm.all_reduce(std::span(&go_on, 1), Reduction::min, stream).wait();
      if (go_on == 0) break;
      const double start = thread_cpu_seconds();
      for (int i = 0; i < batch; ++i) operation(stream);
      cpu[comm.rank().offset()] += thread_cpu_seconds() - start;
      comm.all_reduce(std::span(&go_on, 1), Reduction::min, stream).wait();
    }
  });
  const double total = std::accumulate(cpu.begin(), cpu.end(), 0.0);
  state.counters["cpu_per_rank"] = total / ranks / static_cast<double>(state.iterations());
}

void all_gather(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const auto size = static_cast<std::size_t>(state.range(1));
  on_ranks(state, ranks, [&](Communicator& comm) {
    return [&comm, mine = Bytes(size), all = Bytes(size * static_cast<std::size_t>(ranks))](
               CpuStream& stream) mutable { comm.all_gather(mine, all, stream).wait(); };
  });
}

// Every rank sends `size` bytes to every other: ranks x (ranks - 1) messages.
void exchange(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const auto size = static_cast<std::size_t>(state.range(1));
  on_ranks(state, ranks, [&](Communicator& comm) {
    return [&comm, size, out = Bytes(size * static_cast<std::size_t>(ranks)),
            in = Bytes(size * static_cast<std::size_t>(ranks)), sends = std::vector<SendSlice>(),
            receives = std::vector<ReceiveSlice>()](CpuStream& stream) mutable {
      sends.clear();
      receives.clear();
      for (int peer = 0; peer < comm.size(); ++peer) {
        if (RankId(peer) == comm.rank()) continue;
        const std::size_t offset = static_cast<std::size_t>(peer) * size;
        sends.push_back({RankId(peer), std::span(out).subspan(offset, size)});
        receives.push_back({RankId(peer), std::span(in).subspan(offset, size)});
      }
      comm.send_receive(sends, receives, stream, "exchange").wait();
    };
  });
}

// The lower limit: every rank copies as many bytes as in `exchange`, without messages.
void copies_alone(benchmark::State& state) {
  const auto ranks = static_cast<int>(state.range(0));
  const auto size = static_cast<std::size_t>(state.range(1));
  on_ranks(state, ranks, [&](Communicator& comm) {
    return [&comm, size, out = Bytes(size * static_cast<std::size_t>(ranks)),
            in = Bytes(size * static_cast<std::size_t>(ranks))](CpuStream&) mutable {
      for (int peer = 0; peer < comm.size(); ++peer) {
        if (RankId(peer) == comm.rank()) continue;
        const std::size_t offset = static_cast<std::size_t>(peer) * size;
        std::memcpy(&in[offset], &out[offset], size);
        benchmark::ClobberMemory();
      }
    };
  });
}

void all_gathers(benchmark::internal::Benchmark* each) {
  each->Args({2, 1024})->Args({8, 1024})->Args({64, 1024})->UseRealTime()->Unit(benchmark::kMicrosecond);
}
void exchanges(benchmark::internal::Benchmark* each) {
  each->Args({8, 1024})->Args({8, 64 << 10})->Args({8, 1 << 20})->Args({64, 1024});
  each->Args({2, 1 << 20})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK(all_gather)->Apply(all_gathers);
BENCHMARK(exchange)->Apply(exchanges);
BENCHMARK(copies_alone)->Apply(exchanges);

}  // namespace
}  // namespace evenkeel

BENCHMARK_MAIN();
