// Teams made of a FiberBlock's lanes, and the overloads by which the planner works with them.
#pragma once

#include <algorithm>

#include "evenkeel/balance/cuda/internal/lanes.h"
#include "tests/support/fiber_block.h"

namespace evenkeel::cuda {

class FiberWarp {
 public:
  int size() const { return Block::kWarp; }
  int rank() const { return Block::running().lane() % Block::kWarp; }
  void sync() const { Block::running().wait_for_warp(); }
  template <class T>
  T sum(T value) const {
    return all(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  T min(T value) const {
    return all(value, [](T a, T b) { return std::min(a, b); });
  }
  template <class T>
  T max(T value) const {
    return all(value, [](T a, T b) { return std::max(a, b); });
  }
  int first_lane(bool says_so) const {
    const int first = min(says_so ? rank() : Block::kWarp);
    return first == Block::kWarp ? -1 : first;
  }

 private:
  using Block = testing::FiberBlock;

  template <class T, class Combine>
  T all(T value, const Combine& combine) const {
    Block& block = Block::running();
    block.left_by(block.lane()) = static_cast<std::int64_t>(value);
    sync();
    const int first = block.lane() - rank();
    auto result = static_cast<T>(block.left_by(first));
    for (int i = 1; i < size(); ++i) result = combine(result, static_cast<T>(block.left_by(first + i)));
    sync();
    return result;
  }
};

class FiberTeam {
 public:
  int size() const { return Block::running().size(); }
  int rank() const { return Block::running().lane(); }
  void sync() const { Block::running().wait_for_block(); }
  template <class Index, class F>
  void for_each(Index n, F&& f) const {
    for (Index i = static_cast<Index>(rank()); i < n; i += static_cast<Index>(size())) f(i);
  }
  template <class T>
  T sum_before(T value, T& total) const {
    Block& block = Block::running();
    block.left_by(rank()) = static_cast<std::int64_t>(value);
    sync();
    T before = 0;
    total = 0;
    for (int i = 0; i < size(); ++i) {
      if (i < rank()) before += static_cast<T>(block.left_by(i));
      total += static_cast<T>(block.left_by(i));
    }
    sync();
    return before;
  }

 private:
  using Block = testing::FiberBlock;
};

inline Lanes<FiberWarp> lanes_of(const FiberTeam&) {
  return {};
}
template <class F, class Aside = Idle>
void lead(const FiberTeam& team, const F& f, const Aside& aside = {}) {
  const int warp = testing::FiberBlock::kWarp;
  team.sync();
  if (team.rank() < warp)
    f(Lanes<FiberWarp>());
  else
    aside(team.rank() - warp, team.size() - warp);
  team.sync();
}
template <class F>
void share_out_by_warp(const FiberTeam& team, int n, const F& f) {
  const int warp = testing::FiberBlock::kWarp;
  for (int i = team.rank() / warp; i < n; i += team.size() / warp) f(Lanes<FiberWarp>(), i);
}

}  // namespace evenkeel::cuda
