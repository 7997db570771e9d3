// Weights arrive as they were sent, and the owner adds the gradients of the experts it lent.
#include "evenkeel/exchange/weight_transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <tuple>

#include "evenkeel/comm/recording.h"
#include "evenkeel/comm/thread/run_ranks.h"

namespace evenkeel::testing {
namespace {

constexpr std::array<std::int64_t, kExpertParts> kElements = {70, 33, 0, 5};
constexpr std::int64_t kAll = 70 + 33 + 5;

// `segments[e]` are the ranks that compute expert e, one assignment each.
StepPlan plan_of(const LayerPlacement& placement, const std::vector<std::vector<int>>& segments) {
  StepPlan plan;
  plan.begin(placement);
  for (std::size_t e = 0; e < segments.size(); ++e) {
    plan.begin_expert(ExpertId(e));
    for (int rank : segments[e]) plan.give(RankId(rank), 1);
  }
  return plan;
}

template <class Part, class Number>
std::array<Part, kExpertParts> cut(std::vector<Number>& all) {
  std::array<Part, kExpertParts> parts;
  std::size_t begin = 0;
  for (std::size_t p = 0; p < kExpertParts; ++p) {
    const auto part = std::span(all).subspan(begin, static_cast<std::size_t>(kElements[p]));
    if constexpr (std::is_same_v<Part, std::span<const std::byte>>)
      parts[p] = std::as_bytes(part);
    else
      parts[p] = part;
    begin += part.size();
  }
  return parts;
}

float weight(std::size_t expert, std::size_t i) {
  return static_cast<float>(expert * 1000 + i);
}
float gradient(int rank, std::size_t expert, std::size_t i) {
  return static_cast<float>((rank + 1) * 1000) + weight(expert, i);
}

// Lends weights as planned and returns gradients twice; every rank checks what it receives. With `nodes`,
// each expert must cross only once from its lender to each other node that borrows it.
void expect_lending(const LayerPlacement& placement, const std::vector<std::vector<int>>& segments,
                    const std::vector<int>& nodes = {}) {
  const StepPlan plan = plan_of(placement, segments);
  std::atomic<std::int64_t> between_nodes = 0;
  run_ranks(placement.num_ranks(), [&](Communicator& inner) {
    RecordingCommunicator comm(inner, nodes);
    const RankId me = comm.rank();
    Arena arena(Device::cpu());
    std::vector<std::vector<float>> weights(segments.size()), owned(segments.size());
    std::vector<ExpertParts> natives(segments.size());
    std::vector<GradientParts> owned_parts(segments.size());
    for (ExpertId expert : placement.natives(me)) {
      const std::size_t e = expert.offset();
      for (std::size_t i = 0; i < kAll; ++i) weights[e].push_back(weight(e, i));
      natives[e] = cut<std::span<const std::byte>>(weights[e]);
      owned[e].assign(kAll, 0.25f);
      if (placement.owner(expert) == me) owned_parts[e] = cut<std::span<float>>(owned[e]);
    }
    WeightTransfer transfer(comm, arena, kElements, sizeof(float), Nodes(nodes));
    std::vector<ExpertId> expected, borrowed, whole;
    for (const Transfer& each : plan.transfers())
      if (each.to == me) expected.push_back(each.expert);
    EXPECT_EQ(transfer.borrows(plan), std::ssize(expected));
    transfer.fetch(plan, natives, [&](ExpertId expert, const ExpertParts& parts) {
      EXPECT_EQ(arena.in_use_bytes(), whole_lines(transfer.arrival_bytes()));
      const bool gate_up = !parts.front().empty();
      if (gate_up) borrowed.push_back(expert);
      ASSERT_EQ(borrowed.back(), expert);
      std::size_t i = gate_up ? 0 : kElements.front();
      for (const auto& part : parts) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part.data()) % 64, 0u);
        for (std::size_t n = 0; n < part.size() / 4; ++n, ++i)
          ASSERT_EQ(reinterpret_cast<const float*>(part.data())[n], weight(expert.offset(), i));
      }
      EXPECT_EQ(i, static_cast<std::size_t>(gate_up ? kElements.front() : kAll));
      if (!gate_up) whole.push_back(expert);
    });
    EXPECT_EQ(borrowed, expected);
    EXPECT_EQ(whole, expected);
    EXPECT_EQ(arena.in_use_bytes(), 0);
    for (int step = 0; step < 2; ++step) {  // the second step reuses the memory of the first
      transfer.open_gradients(plan, placement);
      EXPECT_EQ(arena.in_use_bytes(), whole_lines(transfer.foreign_gradient_bytes(plan, placement)));
      for (const WeightTransfer::ForeignGradient& foreign : transfer.foreign_gradients()) {
        std::size_t i = 0;
        for (const auto& part : foreign.parts)
          for (float& value : part) {
            ASSERT_EQ(value, 0.0f);
            value += gradient(me.value(), foreign.expert.offset(), i++);
          }
      }
      transfer.return_gradients(owned_parts);
    }
    transfer.finish();
    between_nodes += comm.record("weight transfer").bytes_sent_between_nodes;
    EXPECT_EQ(arena.in_use_bytes(), 0);
    for (ExpertId expert : placement.natives(me)) {
      const std::size_t e = expert.offset();
      for (std::size_t i = 0; i < kAll; ++i) {
        float sum = 0.25f;
        for (int rank = 0; rank < placement.num_ranks(); ++rank)
          if (rank != me.value() && std::ranges::count(segments[e], rank) > 0 &&
              placement.owner(expert) == me)
            sum += 2 * gradient(rank, e, i);
        ASSERT_EQ(owned[e][i], sum) << "expert " << e << " at rank " << me.value();
      }
    }
  });
  std::set<std::tuple<int, int, int>> crossings;
  for (const Transfer& each : plan.transfers())
    if (!nodes.empty() && nodes[each.from.offset()] != nodes[each.to.offset()])
      crossings.insert({each.expert.value(), each.from.value(), nodes[each.to.offset()]});
  EXPECT_EQ(between_nodes, std::ssize(crossings) * std::int64_t{kAll * sizeof(float)});
}

TEST(WeightTransfer, ServesWhoeverLendsToWhom) {
  // Ranks that lend to each other, and a cycle of lenders.
  expect_lending(LayerPlacement({{0}, {1}}, 2), {{0, 1}, {1, 0}});
  expect_lending(LayerPlacement({{0}, {1}, {2}, {3}}, 4), {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
  // One expert lent to many ranks, and many experts lent to one rank.
  expect_lending(LayerPlacement({{0}, {0}, {1}, {2}}, 4), {{0, 1, 2, 3}, {3}, {1, 3}, {3, 2, 3}});
  // Nothing is lent; gradients of copies return to the owner.
  expect_lending(LayerPlacement({{1, 0}, {2, 1, 0}}, 3), {{0, 1, 2}, {0, 1, 0}});
  expect_lending(LayerPlacement({{0}, {1}}, 2), {{0}, {1}});
}

TEST(WeightTransfer, CrossesOnceToANodeWhereSeveralBorrow) {
  const LayerPlacement apart({{0}, {1}, {2}, {3}, {4}, {5}}, 6);
  // Each node's first borrower forwards weights to the node's other borrowers. Lenders also borrow and
  // forward.
  expect_lending(apart, {{0, 3, 4, 5}, {1, 5, 3}, {2, 4, 3}, {3, 0, 1, 2}, {4, 2, 1}, {5, 1, 0}},
                 {0, 0, 0, 1, 1, 1});
  expect_lending(apart, {{0, 1, 2, 3, 4, 5}, {1, 0, 2}, {2, 5, 4, 0}, {3, 5}, {4, 1, 3}, {5}},
                 {0, 1, 0, 1, 2, 2});
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::vector<int>> segments;
    for (int expert = 0; expert < 6; ++expert) {
      std::vector<int>& of = segments.emplace_back(1, expert);
      for (int rank = 0; rank < 6; ++rank)
        if (rank != expert && random() % 2 == 0) of.push_back(rank);
      std::shuffle(of.begin() + 1, of.end(), random);
    }
    const std::vector<int> layouts[] = {
        {0, 0, 0, 1, 1, 1}, {0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 0, 0, 0, 1}};
    expect_lending(apart, segments, layouts[round % 4]);
  }
}

}  // namespace
}  // namespace evenkeel::testing
