// Borrowed weights are in their slots when a chunk computes with them, and no order of use sends fewer.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "evenkeel/exchange/cuda/weight_copies.h"

namespace evenkeel::testing {
namespace {

struct Case {
  int borrowed, slots, rounds, chunks;
};

struct Pass {
  cuda::RouteShape shape;
  cuda::StepView step;
  std::vector<std::int32_t> experts;
  std::int32_t num_chunks;

  explicit Pass(const Case& c)
      : experts(static_cast<std::size_t>(c.slots * c.rounds), -1), num_chunks(c.chunks) {
    shape.borrow_slots = c.slots;
    shape.borrow_rounds = c.rounds;
    for (std::size_t b = 0; b < static_cast<std::size_t>(c.borrowed); ++b)
      experts[b] = 100 + static_cast<std::int32_t>(b);
    step.borrowed_expert = experts.data();
    step.num_chunks = &num_chunks;
  }

  std::int32_t expert(int round, int slot) const {
    return experts[static_cast<std::size_t>(round * shape.borrow_slots + slot)];
  }
};

// Walks through a pass as the layer does, including launches of unneeded chunks. Returns the number of copies
// sent.
std::int64_t walk(const Pass& pass) {
  std::vector<std::int32_t> lies(static_cast<std::size_t>(pass.shape.borrow_slots), -1);
  std::int64_t sent = 0;
  for (int chunk = 0; chunk < pass.num_chunks + 3; ++chunk)
    for (int i = 0; i < pass.shape.borrow_rounds; ++i) {
      const int round = cuda::round_at(chunk, i, pass.shape.borrow_rounds);
      for (int slot = 0; slot < pass.shape.borrow_slots; ++slot) {
        const bool is_sent = cuda::is_sent(pass.shape, pass.step, chunk, round, slot);
        // The layer launches no sends before the first round of a later chunk.
        EXPECT_FALSE(is_sent && i == 0 && chunk > 0);
        if (is_sent) lies[static_cast<std::size_t>(slot)] = pass.expert(round, slot);
        sent += is_sent;
        const bool is_used = chunk < pass.num_chunks && pass.expert(round, slot) >= 0;
        EXPECT_TRUE(!is_used || lies[static_cast<std::size_t>(slot)] == pass.expert(round, slot));
      }
    }
  return sent;
}

TEST(WeightCopies, LeaveEveryWeightInItsPlaceWhenItIsWanted) {
  for (int slots : {1, 2, 3, 7})
    for (int rounds : {1, 2, 3, 5})
      for (int borrowed = 0; borrowed <= slots * rounds; ++borrowed)
        for (int chunks : {1, 2, 4, 8}) {
          SCOPED_TRACE(::testing::Message()
                       << borrowed << " in " << slots << " x " << rounds << ", " << chunks);
          EXPECT_EQ(walk(Pass({borrowed, slots, rounds, chunks})),
                    cuda::weight_copies(borrowed, slots, chunks));
        }
}

// The fewest weight copies over all orders of use within a chunk and all choices of which expert to evict:
// tracks the sets that the slots may hold after each chunk, and the fewest copies that lead to each.
std::int64_t fewest(int borrowed, int slots, int chunks) {
  using Held = std::set<int>;
  std::map<Held, std::int64_t> now{{{}, 0}};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    std::map<std::pair<Held, unsigned>, std::int64_t> open;  // (held, used in this chunk) -> copies
    for (const auto& [held, cost] : now) open[{held, 0}] = cost;
    const unsigned all = (1U << borrowed) - 1;
    std::map<Held, std::int64_t> next;
    for (int used = 0; used <= borrowed; ++used) {
      std::map<std::pair<Held, unsigned>, std::int64_t> further;
      const auto reach = [](auto& costs, const auto& where, std::int64_t cost) {
        const auto [at, is_new] = costs.try_emplace(where, cost);
        if (!is_new) at->second = std::min(at->second, cost);
      };
      for (const auto& [at, cost] : open) {
        const auto& [held, done] = at;
        if (done == all) reach(next, held, cost);
        for (int e = 0; e < borrowed; ++e) {
          if ((done >> e & 1U) != 0) continue;
          const unsigned then = done | 1U << e;
          if (held.contains(e)) {
            reach(further, std::pair(held, then), cost);
            continue;
          }
          Held with = held;
          with.insert(e);
          if (static_cast<int>(held.size()) < slots) reach(further, std::pair(with, then), cost + 1);
          for (int given_up : held) {
            Held without = with;
            without.erase(given_up);
            reach(further, std::pair(without, then), cost + 1);
          }
        }
      }
      open = std::move(further);
    }
    now = std::move(next);
  }
  std::int64_t least = now.begin()->second;
  for (const auto& [held, cost] : now) least = std::min(least, cost);
  return least;
}

TEST(WeightCopies, AreTheFewestOfAnyOrder) {
  for (int borrowed = 1; borrowed <= 5; ++borrowed)
    for (int slots = 1; slots <= borrowed; ++slots)
      for (int chunks : {1, 2, 4})
        EXPECT_EQ(cuda::weight_copies(borrowed, slots, chunks), fewest(borrowed, slots, chunks))
            << borrowed << " in " << slots << ", " << chunks << " chunks";
}

}  // namespace
}  // namespace evenkeel::testing
