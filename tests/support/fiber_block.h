// Emulates the lanes of a GPU block on the host. Each lane is a fiber; one fiber runs at a time. The lanes
// have priorities: between waits, the ready lane with the highest priority runs. Priorities are redrawn after
// a random number of turns, from a few to thousands. So any lane may be delayed for as long as the other
// lanes' waits allow (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding
// Bugs", 2010). Reading before another lane has written, or overwriting what another lane still reads,
// changes the results. Waiting for an event that never comes, or has passed, ends the program.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace evenkeel::testing {

// Ends the program, since a fiber cannot be unwound.
[[noreturn]] inline void give_up(const char* why) {
  std::fprintf(stderr, "emulated block: %s\n", why);
  std::_Exit(1);
}

class FiberBlock {
 public:
  static constexpr int kWarp = 32;

  FiberBlock(int lanes, std::uint64_t seed)
      : fibers_(static_cast<std::size_t>(lanes)),
        arrived_of_warp_(static_cast<std::size_t>(lanes / kWarp)),
        precedence_(static_cast<std::size_t>(lanes) + 1),
        random_(seed) {
    for (Fiber& fiber : fibers_) fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    std::iota(precedence_.begin(), precedence_.end(), 0);
  }

  // body() on every lane.
  void run(const std::function<void()>& body) {
    body_ = body;
    running_ = this;
    for (Fiber& fiber : fibers_) start(fiber);
    while (ended_ < size()) take_turn();
    if (!deferred_.empty()) give_up("work was left when all lanes had ended");
    running_ = nullptr;
    ended_ = 0;
  }

  static FiberBlock& running() { return *running_; }
  int size() const { return static_cast<int>(fibers_.size()); }
  int lane() const { return lane_; }
  // A lane's number for the other lanes to read after the next wait.
  std::int64_t& left_by(int lane) { return fibers_[static_cast<std::size_t>(lane)].left; }

  void wait_for_warp() {
    const int warp = lane_ / kWarp;
    arrive_at_barrier(arrived_of_warp_[static_cast<std::size_t>(warp)], warp * kWarp, kWarp);
  }
  void wait_for_block() { arrive_at_barrier(arrived_, 0, size()); }
  void wait_until(std::function<bool()> holds) {
    own().holds = std::move(holds);
    leave(State::until);
    own().holds = nullptr;
  }

  // Schedules `work` outside the lanes at a random time. Work of one sequence runs in the order of the calls.
  static constexpr int kNoSequence = -1;
  void defer(int sequence, std::function<void()> work) { deferred_.push_back({sequence, std::move(work)}); }

 private:
  static constexpr std::size_t kStackBytes = 1 << 16;
  enum class State { ready, barrier, until, ended };
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    State state = State::ready;
    std::function<bool()> holds;
    std::int64_t left = 0;
  };
  struct DeferredWork {
    int sequence;
    std::function<void()> work;
  };

  static void enter() {
    running_->body_();
    ++running_->ended_;
    running_->leave(State::ended);
  }
  static void start(Fiber& fiber) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
    fiber.state = State::ready;
  }
  Fiber& own() { return fibers_[static_cast<std::size_t>(lane_)]; }
  void leave(State state) {
    Fiber& fiber = own();
    fiber.state = state;
    swapcontext(&fiber.context, &turns_);
  }
  void arrive_at_barrier(int& arrived, int begin, int count) {
    if (++arrived < count) return leave(State::barrier);
    arrived = 0;
    for (int i = begin; i < begin + count; ++i) fibers_[static_cast<std::size_t>(i)].state = State::ready;
    leave(State::ready);
  }

  void take_turn() {
    if (turns_left_-- == 0) {
      std::ranges::shuffle(precedence_, random_);
      turns_left_ = std::int64_t{1} << random_() % 15;
    }
    const auto next = std::ranges::find_if(precedence_, [this](int i) { return can_go_on(i); });
    if (next == precedence_.end()) give_up("its lanes wait for what never comes");
    if (*next == size()) return do_deferred();
    lane_ = *next;
    own().state = State::ready;
    swapcontext(&turns_, &own().context);
  }
  bool can_go_on(int i) const {
    if (i == size()) return !deferred_.empty();
    const Fiber& fiber = fibers_[static_cast<std::size_t>(i)];
    return fiber.state == State::ready || (fiber.state == State::until && fiber.holds());
  }
  void do_deferred() {
    auto next = deferred_.begin() + static_cast<std::ptrdiff_t>(random_() % deferred_.size());
    if (next->sequence != kNoSequence)
      next = std::ranges::find(deferred_, next->sequence, &DeferredWork::sequence);
    const std::function<void()> work = std::move(next->work);
    deferred_.erase(next);
    work();
  }

  inline static FiberBlock* running_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<int> arrived_of_warp_;
  int arrived_ = 0, ended_ = 0;
  std::vector<int> precedence_;  // of the lanes; the last entry is for deferred work
  std::int64_t turns_left_ = 0;
  std::vector<DeferredWork> deferred_;
  std::mt19937_64 random_;
  std::function<void()> body_;
  ucontext_t turns_;
  int lane_ = 0;
};

}  // namespace evenkeel::testing
