// Laws that every communicator must keep for a GPU's bytes, whatever its transport.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/cuda/stream.h"
#include "tests/support/device_values.h"

namespace evenkeel::testing {

using Longs = std::vector<std::int64_t>;

inline void gathers_in_rank_order(Communicator& comm, Arena& arena, CudaStream& stream) {
  const std::int64_t me = comm.rank().value();
  const auto ranks = static_cast<std::size_t>(comm.size());
  const DeviceValues<std::int64_t> mine(arena, stream, Longs{me, me + 100});
  const DeviceValues<std::int64_t> all(arena, stream, 2 * ranks);
  comm.all_gather(mine.bytes(), all.writable_bytes(), stream);
  Longs expected;
  for (std::int64_t rank = 0; rank < comm.size(); ++rank) expected.insert(expected.end(), {rank, rank + 100});
  EXPECT_EQ(all.read(), expected);
}

// Exchanges between all pairs, repeatedly and from the same buffers, without waiting on the host in between.
inline void exchanges_in_stream_order(Communicator& comm, Arena& arena, CudaStream& stream) {
  constexpr std::int64_t kRounds = 20;
  const std::int64_t me = comm.rank().value();
  const auto ranks = static_cast<std::size_t>(comm.size());
  const DeviceValues<std::int64_t> out(arena, stream, ranks);
  const DeviceValues<std::int64_t> in(arena, stream, ranks);
  const DeviceValues<std::int64_t> seen(arena, stream, ranks * kRounds);
  Longs all_rounds;
  for (std::int64_t round = 0; round < kRounds; ++round)
    for (std::int64_t to = 0; to < comm.size(); ++to) all_rounds.push_back(round * 10000 + me * 100 + to);
  const DeviceValues<std::int64_t> sources(arena, stream, all_rounds);
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    sends.push_back({RankId(static_cast<int>(peer)), out.bytes().subspan(peer * 8, 8)});
    receives.push_back({RankId(static_cast<int>(peer)), in.writable_bytes().subspan(peer * 8, 8)});
  }
  for (std::size_t round = 0; round < kRounds; ++round) {
    stream.flush();
    stream.copy(out.span().data(), &sources.span()[round * ranks], ranks * 8);
    comm.send_receive(sends, receives, stream, "exchange");
    stream.flush();
    stream.copy(&seen.span()[round * ranks], in.span().data(), ranks * 8);
  }
  const Longs got = seen.read();
  for (std::int64_t round = 0; round < kRounds; ++round)
    for (std::int64_t from = 0; from < comm.size(); ++from)
      EXPECT_EQ(got[static_cast<std::size_t>(round * comm.size() + from)], round * 10000 + from * 100 + me);
}

inline void reduces_in_rank_order(Communicator& comm, Arena& arena, CudaStream& stream) {
  const std::int64_t me = comm.rank().value();
  const std::int64_t last = comm.size() - 1;
  const DeviceValues<std::int64_t> values(arena, stream, Longs{me, -me, 7});
  comm.all_reduce(values.span(), Reduction::sum, stream);
  EXPECT_EQ(values.read(), (Longs{last * (last + 1) / 2, -last * (last + 1) / 2, 7 * comm.size()}));
  const DeviceValues<double> reals(arena, stream, std::vector<double>{0.5 + static_cast<double>(me)});
  comm.all_reduce(reals.span(), Reduction::max, stream);
  EXPECT_EQ(reals.read(), std::vector<double>{0.5 + static_cast<double>(last)});
  comm.barrier(stream).wait();
}

inline void splits(Communicator& comm, Arena& arena, CudaStream& stream) {
  const std::unique_ptr<Communicator> half = comm.split(comm.rank().value() % 2);
  gathers_in_rank_order(*half, arena, stream);
}

inline void every_law(Communicator& comm, Arena& arena, CudaStream& stream) {
  gathers_in_rank_order(comm, arena, stream);
  exchanges_in_stream_order(comm, arena, stream);
  reduces_in_rank_order(comm, arena, stream);
  splits(comm, arena, stream);
}

}  // namespace evenkeel::testing
