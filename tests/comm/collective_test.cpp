// Collectives compared with values computed locally, and communicators made by split().
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/device/cpu/stream.h"
#include "tests/comm/transport.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

template <class Value>
std::span<const std::byte> bytes_of(const std::vector<Value>& values) {
  return std::as_bytes(std::span(values));
}
template <class Value>
std::span<std::byte> bytes_of(std::vector<Value>& values) {
  return std::as_writable_bytes(std::span(values));
}

// Values of `rank`; every rank can compute those of every other rank.
std::vector<double> values_of(int rank, std::size_t count, int round) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank * 1000 + round));
  std::vector<double> values(count);
  for (double& each : values)
    each = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 80) - 93);
  return values;
}

TEST(AllGather, GivesEveryRankAllBytesInRankOrder) {
  for (int ranks = 1; ranks <= std::min(16, most_ranks()); ++ranks) {
    run_on(ranks, [&](Communicator& comm) {
      CpuStream stream;
      int round = 0;
      for (std::size_t count : std::initializer_list<std::size_t>{1, 0, 13, 128, 5000}) {
        const std::vector<double> mine = values_of(comm.rank().value(), count, ++round);
        std::vector<double> all(count * static_cast<std::size_t>(ranks));
        comm.all_gather(bytes_of(mine), bytes_of(all), stream).wait();
        std::vector<double> expected;
        for (int peer = 0; peer < ranks; ++peer) {
          const std::vector<double> theirs = values_of(peer, count, round);
          expected.insert(expected.end(), theirs.begin(), theirs.end());
        }
        EXPECT_EQ(all, expected) << ranks << " ranks, " << count << " values";
      }
    });
  }
}

TEST(AllGather, WorksInPlace) {
  constexpr int ranks = 4;
  run_on(ranks, [&](Communicator& comm) {
    CpuStream stream;
    std::vector<int> all(ranks * 100, -1);
    const std::span<int> mine = std::span(all).subspan(comm.rank().offset() * 100, 100);
    std::fill(mine.begin(), mine.end(), comm.rank().value());
    comm.all_gather(std::as_bytes(mine), bytes_of(all), stream).wait();
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int>(i / 100));
  });
}

TEST(AllGather, RefusesADestinationOfAnotherSize) {
  run_on(3, [](Communicator& comm) {
    CpuStream stream;
    const std::vector<int> mine(2);
    std::vector<int> all(5);
    EXPECT_EQ(message_of<InvalidArgument>(
                  [&] { comm.all_gather(bytes_of(mine), bytes_of(all), stream, "counts"); }),
              "all: has 20 bytes in counts; allowed: 3 ranks times 8 bytes");
  });
}

TEST(AllReduce, AddsInRankOrderOnEveryRank) {
  for (int ranks : {1, 2, 3, 7, 16}) {
    if (ranks > most_ranks()) continue;
    run_on(ranks, [&](Communicator& comm) {
      CpuStream stream;
      std::vector<double> values = values_of(comm.rank().value(), 33, 5);
      comm.all_reduce(std::span(values), Reduction::sum, stream).wait();
      std::vector<double> expected = values_of(0, 33, 5);
      for (int peer = 1; peer < ranks; ++peer) {
        const std::vector<double> theirs = values_of(peer, 33, 5);
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += theirs[i];
      }
      EXPECT_EQ(values, expected) << ranks << " ranks: not the same bits";
    });
  }
}

template <class Value>
void expect_reduced(Value unit) {
  run_on(5, [&](Communicator& comm) {
    CpuStream stream;
    const Value mine = static_cast<Value>(comm.rank().value() - 2) * unit;
    std::vector<Value> least{mine, 3};
    std::vector<Value> greatest{mine, 3};
    std::vector<Value> sum{mine, 3};
    comm.all_reduce(std::span(least), Reduction::min, stream);
    comm.all_reduce(std::span(greatest), Reduction::max, stream);
    comm.all_reduce(std::span(sum), Reduction::sum, stream);
    stream.synchronize();
    EXPECT_EQ(least, (std::vector<Value>{-2 * unit, 3}));
    EXPECT_EQ(greatest, (std::vector<Value>{2 * unit, 3}));
    EXPECT_EQ(sum, (std::vector<Value>{0, 15}));
  });
}

TEST(AllReduce, FindsLeastGreatestAndSumOfIntegersAndDoubles) {
  expect_reduced(std::int64_t{1} << 60);
  expect_reduced(1.5);
}

TEST(Collectives, AreMatchedApartFromMessages) {
  run_on(2, [](Communicator& comm) {
    const int other = 1 - comm.rank().value();
    const std::vector<int> mine{comm.rank().value()};
    std::vector<int> all(2);
    std::vector<double> in(1);
    const std::vector<double> out{0.5 + comm.rank().value()};
    CpuStream stream;
    const SendSlice send{RankId(other), bytes_of(out)};
    const ReceiveSlice receive{RankId(other), bytes_of(in)};
    // The two ranks issue the message and the collective in opposite order.
    if (comm.rank() == RankId(0)) comm.send_receive({&send, 1}, {&receive, 1}, stream, "message");
    CpuStream collectives;
    comm.all_gather(bytes_of(mine), bytes_of(all), collectives);
    if (comm.rank() == RankId(1)) comm.send_receive({&send, 1}, {&receive, 1}, stream, "message");
    stream.synchronize();
    collectives.synchronize();
    EXPECT_EQ(all, (std::vector<int>{0, 1}));
    EXPECT_EQ(in[0], 0.5 + other);
  });
}

TEST(Split, GroupsRanksByColorInTheirOrder) {
  constexpr int ranks = 9;
  run_on(ranks, [&](Communicator& comm) {
    const int color = comm.rank().value() % 3 == 0 ? 70 : -5;
    const std::unique_ptr<Communicator> part = comm.split(color);
    std::vector<int> members;
    for (int rank = 0; rank < ranks; ++rank) {
      if ((rank % 3 == 0) == (color == 70)) members.push_back(rank);
    }
    EXPECT_EQ(part->size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[part->rank().offset()], comm.rank().value());
    CpuStream stream;
    const std::vector<int> mine{comm.rank().value()};
    std::vector<int> all(members.size());
    part->all_gather(bytes_of(mine), bytes_of(all), stream).wait();
    EXPECT_EQ(all, members);
  });
}

TEST(Split, MakesCommunicatorsWhoseMessagesDoNotMixWithTheParents) {
  run_on(2, [](Communicator& comm) {
    const std::unique_ptr<Communicator> first = comm.split(0);
    const std::unique_ptr<Communicator> second = first->split(0);
    Communicator* const all[] = {&comm, first.get(), second.get()};
    const RankId other(1 - comm.rank().value());
    std::vector<int> out{1, 2, 3};
    std::vector<int> in(3);
    CpuStream streams[3];
    for (std::size_t i : {0U, 1U, 2U}) {
      const SendSlice send{other, std::as_bytes(std::span(&out[i], 1))};
      all[i]->send_receive({&send, 1}, {}, streams[i], "apart");
    }
    for (std::size_t i : {2U, 0U, 1U}) {
      const ReceiveSlice receive{other, std::as_writable_bytes(std::span(&in[i], 1))};
      all[i]->send_receive({}, {&receive, 1}, streams[i], "apart");
    }
    for (CpuStream& stream : streams) stream.synchronize();
    EXPECT_EQ(in, out);
  });
}

TEST(Split, CanBeRepeatedAndItsResultsDropped) {
  run_on(4, [](Communicator& comm) {
    for (int i = 0; i < 50; ++i) {
      const std::unique_ptr<Communicator> part = comm.split((comm.rank().value() + i) % 2);
      EXPECT_EQ(part->size(), 2);
    }
  });
}

}  // namespace
}  // namespace evenkeel
