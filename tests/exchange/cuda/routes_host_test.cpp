// The device's routing tables, made on the host, equal those of exchange/ for the same step.
#include <gtest/gtest.h>

#include "evenkeel/budget/shares.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/exchange/cuda/internal/inward.h"
#include "evenkeel/exchange/exchange.h"
#include "tests/exchange/cuda/host_routes.h"
#include "tests/exchange/random_step.h"

namespace evenkeel::testing {
namespace {

// The choices of the chunk's tokens.
Choices part_of(const Choices& all, const HostRoutes& routes, int chunk) {
  Choices part = all;
  for (int r = 0; r < all.num_ranks(); ++r) {
    const auto begin = all.ids[static_cast<std::size_t>(r)].begin() + routes.first_token(r, chunk) * all.k;
    part.ids[static_cast<std::size_t>(r)].assign(begin, begin + routes.tokens(r, chunk) * all.k);
  }
  return part;
}

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

void expect_equal(const Dispatched& host, const RankTables& device, std::int64_t chunk_first, RankId me) {
  const int ranks = device.shape.num_ranks;
  for (int r = 0; r < ranks; ++r) {
    const Dispatched::Peer peer = host.peer(RankId(r));
    ASSERT_EQ(device.in_row[at(r)], peer.in_row) << "rows from " << r;
    ASSERT_EQ(device.in_row[at(r) + 1] - device.in_row[at(r)], peer.in_rows);
    ASSERT_EQ(device.in_position[at(r)], peer.in_position) << "positions from " << r;
    ASSERT_EQ(device.in_position[at(r) + 1] - device.in_position[at(r)], peer.in_positions);
    const bool own = r == me.value();
    const std::int64_t entries = device.out_begin[at(r) + 1] - device.out_begin[at(r)];
    ASSERT_EQ(entries, own ? peer.in_positions : peer.out_positions) << "entries to " << r;
    ASSERT_EQ(device.out_rows[at(r)], own ? peer.in_rows : peer.out_rows) << "rows to " << r;
    for (std::int64_t row = 0; row < device.out_rows[at(r)]; ++row) {
      const std::int64_t token =
          own ? host.token_here()[at(row)] : host.token_elsewhere()[at(peer.out_row + row)];
      ASSERT_EQ(device.out_token[at(device.out_begin[at(r)] + row)], chunk_first + token);
    }
  }
  const auto result_slot = host.result_slot();
  const auto row_slot = host.row_slot();
  for (std::size_t a = 0; a < result_slot.size(); ++a) {
    if (result_slot[a] < 0) {
      ASSERT_EQ(device.entry[a], -1);
      continue;
    }
    const auto destination = device.destination[a];
    const Dispatched::Peer peer = host.peer(RankId(destination));
    const bool own = destination == me.value();
    const std::int64_t in_message = device.entry[a] - device.out_begin[at(destination)];
    ASSERT_EQ(result_slot[a],
              (own ? peer.in_position : host.positions_here + peer.out_position) + in_message);
    if (row_slot[a] < 0) continue;
    ASSERT_EQ(row_slot[a],
              (own ? peer.in_row : host.rows_here + peer.out_row) + device.out_row[at(device.entry[a])]);
  }
}

void expect_equal_groups(const Dispatched& host, const RankTables& device) {
  std::size_t filled = 0;
  for (std::size_t g = 0; g + 1 < device.group_begin.size(); ++g)
    filled += device.group_begin[g + 1] > device.group_begin[g];
  std::size_t expected = 0;
  for (const Dispatched::Group& group : host.groups()) {
    expected += group.end > group.begin;
    if (group.end == group.begin) continue;
    const auto g = at(device.group_of[group.expert.offset()]);
    ASSERT_EQ(device.group_begin[g + 1] - device.group_begin[g], group.end - group.begin);
    for (std::int64_t i = 0; i < group.end - group.begin; ++i) {
      const std::size_t there = at(device.group_begin[g] + i);
      ASSERT_EQ(device.input_row[there], host.input_row()[at(group.begin + i)]);
      ASSERT_EQ(device.output_row[there], host.output_row()[at(group.begin + i)]);
    }
  }
  ASSERT_EQ(filled, expected);
}

// Through the outboxes, every row and result on rank `me` is traced back to its assignment.
void expect_origins(const HostRoutes& routes, int me) {
  const auto outboxes = routes.outboxes();
  const RankTables& t = routes.rank(me);
  const cuda::Inward inward(t.shape, t.step, t.chunk, outboxes.data());
  for (int i = 0; i < inward.positions(); ++i) {
    const cuda::Inward::Origin origin = inward.assignment(i);
    const RankTables& from = routes.rank(origin.rank);
    std::int64_t own = 0;  // the assignment's index in the chunk
    while (from.entry[at(own)] < 0 || from.out_assignment[at(from.entry[at(own)])] != origin.token) ++own;
    ASSERT_EQ(from.destination[at(own)], me);
    ASSERT_EQ(from.entry[at(own)] - from.out_begin[at(me)] + t.in_position[at(origin.rank)], i);
  }
  for (std::size_t p = 0; p < at(inward.positions()); ++p)
    ASSERT_EQ(inward.origin(t.input_row[p]).token, inward.assignment(t.output_row[p]).token / t.shape.top_k);
}

void compare(const Step& step, HostRoutes& routes) {
  const bool whole = routes.num_chunks() == 1;
  ChunkShares shares;  // handles only plans that a planner can make
  if (!whole) shares.begin(step.plan);
  for (int chunk = 0; chunk < routes.num_chunks(); ++chunk) {
    const Choices part = part_of(step.choices, routes, chunk);
    StepPlan plan;
    if (!whole) shares.next(part.counts(), step.placement, plan);
    routes.make_chunk(chunk);
    run_ranks(step.choices.num_ranks(), [&](Communicator& comm) {
      Arena arena(Device::cpu());
      CpuStream stream;
      Exchange exchange(comm, stream, arena, 1, DataType::f32);
      const auto& ids = part.ids[comm.rank().offset()];
      const std::vector<float> zeros(ids.size());
      const TopK top_k{static_cast<std::int64_t>(ids.size()) / part.k, part.k, ids, zeros};
      const Dispatched host = exchange.dispatch(zeros.data(), top_k, part.counts(), whole ? step.plan : plan);
      const RankTables& device = routes.rank(comm.rank().value());
      expect_equal(host, device, routes.first_token(comm.rank().value(), chunk), comm.rank());
      expect_equal_groups(host, device);
    });
    for (int r = 0; r < step.choices.num_ranks(); ++r) expect_origins(routes, r);
  }
}

TEST(CudaRoutes, AreTheTablesOfTheHostsExchange) {
  for (unsigned seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Step step = random_step(seed);
    HostRoutes routes(step.choices, step.placement, step.plan,
                      {.num_slices = 1 + static_cast<int>(seed % 9)});
    ASSERT_NO_FATAL_FAILURE(compare(step, routes));
    if (HasFailure()) return;
  }
}

TEST(CudaRoutes, OfChunksAreTheTablesOfTheirSharesOfThePlan) {
  int cut = 0;
  for (unsigned seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Step step = random_step(seed / 3 * 4 + seed % 3);
    std::int64_t most = 1;
    for (std::int64_t load : step.plan.rank_loads()) most = std::max(most, load);
    const auto positions = static_cast<std::int32_t>(std::max<std::int64_t>(most / (1 + seed % 5), 1));
    // One token per slice, so that even the fallback of most_chunks chunks cuts as finely as possible.
    HostRoutes routes(step.choices, step.placement, step.plan,
                      {.num_slices = 64,
                       .most_chunks = 8,
                       .most_positions = std::max(positions, static_cast<std::int32_t>(most))});
    HostRoutes tight(step.choices, step.placement, step.plan,
                     {.num_slices = 64, .most_chunks = 8, .most_positions = positions});
    ASSERT_EQ(routes.num_chunks(), 1);
    ASSERT_NO_FATAL_FAILURE(compare(step, routes));
    if (tight.num_chunks() == 8) continue;  // may not fit; the layer never makes such chunks
    cut += tight.num_chunks() > 1;
    ASSERT_NO_FATAL_FAILURE(compare(step, tight));
    if (HasFailure()) return;
  }
  EXPECT_GT(cut, 100);
}

}  // namespace
}  // namespace evenkeel::testing
