// The lanes of a block on the host, each a thread of control of its own. Between the points where they wait
// for one another they run in random order, so that what one reads before another has written it, or writes
// where another still reads, gives other results than a team of one lane.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "evenkeel/balance/cuda/internal/lanes.h"

namespace evenkeel::testing {

class FiberBlock {
 public:
  static constexpr int kWarp = 32;
  enum class Until { nothing, warp, block, end };

  FiberBlock(int lanes, std::uint64_t seed) : fibers_(static_cast<std::size_t>(lanes)), random_(seed) {
    for (Fiber& fiber : fibers_) fiber.stack = std::make_unique<char[]>(kStackBytes);
  }

  // body() on every lane; the block that the team below is of, while it runs.
  void run(const std::function<void()>& body) {
    body_ = body;
    running_ = this;
    for (Fiber& fiber : fibers_) start(fiber);
    while (take_turns() || release_warps() || release_block()) {
    }
    running_ = nullptr;
  }

  static FiberBlock& running() { return *running_; }
  int size() const { return static_cast<int>(fibers_.size()); }
  int lane() const { return lane_; }
  // What a lane leaves for the others to read after the next wait.
  std::int64_t& left_by(int lane) { return fibers_[static_cast<std::size_t>(lane)].left; }

  void wait(Until until) {
    Fiber& own = fibers_[static_cast<std::size_t>(lane_)];
    own.waits = until;
    swapcontext(&own.context, &turns_);
  }

 private:
  static constexpr std::size_t kStackBytes = 1 << 16;
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Until waits = Until::nothing;
    std::int64_t left = 0;
  };

  static void enter() {
    running_->body_();
    running_->wait(Until::end);
  }
  static void start(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
    fiber.waits = Until::nothing;
  }

  // Some of the lanes that wait for nothing run to where they wait next.
  bool take_turns() {
    std::vector<int> ready;
    for (int i = 0; i < size(); ++i)
      if (fibers_[static_cast<std::size_t>(i)].waits == Until::nothing) ready.push_back(i);
    std::ranges::shuffle(ready, random_);
    for (int lane : ready) {
      lane_ = lane;
      swapcontext(&turns_, &fibers_[static_cast<std::size_t>(lane)].context);
      if (random_() % 64 == 0) break;
    }
    return !ready.empty();
  }
  std::int64_t count(int begin, int end, Until until) const {
    return std::count_if(fibers_.begin() + begin, fibers_.begin() + end,
                         [&](const Fiber& fiber) { return fiber.waits == until; });
  }
  void release(int begin, int end) {
    for (int i = begin; i < end; ++i) fibers_[static_cast<std::size_t>(i)].waits = Until::nothing;
  }
  bool release_warps() {
    bool any = false;
    for (int begin = 0; begin < size(); begin += kWarp) {
      const std::int64_t waiting = count(begin, begin + kWarp, Until::warp);
      if (waiting == 0) continue;
      if (waiting != kWarp) give_up("a warp's lanes wait at different points");
      release(begin, begin + kWarp);
      any = true;
    }
    return any;
  }
  bool release_block() {
    if (count(0, size(), Until::end) == size()) return false;
    if (count(0, size(), Until::block) != size()) give_up("a block's lanes wait at different points");
    release(0, size());
    return true;
  }
  // Ends the program: fibers cannot be left.
  [[noreturn]] static void give_up(const char* why) {
    std::fprintf(stderr, "emulated block: %s\n", why);
    std::_Exit(1);
  }

  inline static FiberBlock* running_ = nullptr;
  std::vector<Fiber> fibers_;
  std::mt19937_64 random_;
  std::function<void()> body_;
  ucontext_t turns_;
  int lane_ = 0;
};

}  // namespace evenkeel::testing

// The teams of a FiberBlock, where the planner looks for what it does with teams.
namespace evenkeel::cuda {

class FiberWarp {
 public:
  int size() const { return Block::kWarp; }
  int rank() const { return Block::running().lane() % Block::kWarp; }
  void sync() const { Block::running().wait(Block::Until::warp); }
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
  void sync() const { Block::running().wait(Block::Until::block); }
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
template <class F>
void lead(const FiberTeam& team, const F& f) {
  lead(team, f, [](int, int) {});
}
template <class F, class Aside>
void lead(const FiberTeam& team, const F& f, const Aside& aside) {
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
