// The order in which ranks enqueue a step on their streams, run on a simulated device that works as late as
// streams and events allow. With all barriers, every token's sum is right. If one barrier is left out, some
// sums are wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>

#include "evenkeel/balance/planner.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/exchange/cuda/internal/inward.h"
#include "evenkeel/exchange/cuda/stream_barrier.h"
#include "evenkeel/layer/cuda/internal/step_order.h"
#include "tests/exchange/cuda/host_routes.h"
#include "tests/support/fake_device.h"

namespace evenkeel::testing {
namespace {

constexpr int kSteps = 3;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Faults that can be injected into a step.
struct Fault {
  int barrier_left_out = -1;   // index of a step's barrier at which only host threads wait
  bool without_turns = false;  // all chunks use the same outbox
  bool weights_late = false;   // experts do not wait for weights sent on the side stream
};

// The memory of all ranks, which other ranks read. Tables are made by the code that the kernels call.
struct World {
  World(unsigned seed, const Fault& which) : device(seed), fault(which), turns(which.without_turns ? 1 : 2) {
    std::mt19937 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 4);
    choices = random_choices(random, ranks);
    placement = random_placement(random, choices.num_experts, ranks, false);
    make_planner({PlannerOptions::Kind::least_loaded, 1000, 3, 0})->plan(choices.counts(), placement, plan);
    std::int64_t most = 1;
    for (const std::int64_t load : plan.rank_loads()) most = std::max(most, load);
    // With these options every chunk fits, and a step may have several chunks.
    const HostRoutesOptions options{.num_slices = 32,
                                    .most_chunks = 4,
                                    .most_positions = static_cast<std::int32_t>(most),
                                    .borrow_slots = 1 + static_cast<int>(random() % 3)};
    for (auto& each : routes) each = std::make_unique<HostRoutes>(choices, placement, plan, options);
    hidden.resize(at(ranks));
    rows.resize(at(ranks));
    results.resize(at(ranks));
    slots.assign(at(ranks), std::vector<int>(at(options.borrow_slots), -1));
    for (auto& of_step : outputs) of_step.resize(at(ranks));
  }

  std::int64_t tokens(int rank) const {
    return static_cast<std::int64_t>(choices.ids[at(rank)].size()) / choices.k;
  }

  FakeDevice device;
  Fault fault;
  int turns;
  Choices choices;
  LayerPlacement placement = LayerPlacement::contiguous(1, 1);
  StepPlan plan;
  std::array<std::unique_ptr<HostRoutes>, 2> routes;  // used in turn, like the layer's outboxes
  std::vector<std::vector<std::int64_t>> hidden, rows, results;
  std::vector<std::vector<int>> slots;  // [rank][slot]: the expert whose weights it holds
  std::array<std::vector<std::vector<std::int64_t>>, kSteps> outputs;
};

std::int64_t element(int rank, std::int64_t token, int step) {
  return 1 + rank + 7 * token + 1000 * step;
}

// One rank's step: the work that MoeLayer launches, on the simulated device.
class FakeStep {
 public:
  FakeStep(World& world, int me, FakeStream& stream, FakeStream& side, cuda::StreamBarrier& barrier, int step)
      : world_(world), me_(me), stream_(stream), side_(side), barrier_(barrier), step_(step) {}

  void sync() {
    if (barriers_++ != world_.fault.barrier_left_out) return barrier_.sync(stream_);
    barrier_.gather();
  }
  // Writes the caller's tensor, which changes each step on the same stream, and empties the borrow slots.
  void publish() {
    stream_.launch([this] {
      std::ranges::fill(world_.slots[at(me_)], -1);
      auto& own = world_.hidden[at(me_)];
      own.resize(at(world_.tokens(me_)));
      for (std::size_t t = 0; t < own.size(); ++t) own[t] = element(me_, static_cast<std::int64_t>(t), step_);
    });
  }
  void count() {}
  void plan() {}
  void borrow_beside() {
    weights_.emplace(stream_, side_);
    borrow(0, 0, side_);
  }
  void borrow(int round) { borrow(chunk_, round, stream_); }
  void deal(int chunk) {
    chunk_ = chunk;
    stream_.launch([this, chunk] { routes(chunk).send(me_, chunk); });
  }
  void receive(int chunk) {
    stream_.launch([this, chunk] { routes(chunk).receive(me_); });
    stream_.launch([this, chunk] { gather(chunk); });
  }
  void run_experts(int round) {
    if (!world_.fault.weights_late) weights_.reset();
    stream_.launch([this, chunk = chunk_, round] { multiply(chunk, round); });
  }
  void combine(int chunk) {
    stream_.launch([this, chunk] { add_up(chunk); });
  }

 private:
  void borrow(int chunk, int round, FakeStream& stream) {
    stream.launch([this, chunk, round] {
      const RankTables& t = routes(chunk).rank(me_);
      for (int slot = 0; slot < t.shape.borrow_slots; ++slot)
        if (cuda::is_sent(t.shape, t.step, chunk, round, slot))
          world_.slots[at(me_)][at(slot)] = t.borrowed_expert[at(round * t.shape.borrow_slots + slot)];
    });
  }

  HostRoutes& routes(int chunk) { return *world_.routes[at(chunk % world_.turns)]; }

  void gather(int chunk) {
    const RankTables& t = routes(chunk).rank(me_);
    const auto outboxes = routes(chunk).outboxes();
    const cuda::Inward inward(t.shape, t.step, t.chunk, outboxes.data());
    world_.results[at(me_)].assign(at(t.shape.most_positions), -1);
    auto& rows = world_.rows[at(me_)];
    rows.assign(at(std::max(0, inward.rows())), 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto origin = inward.origin(static_cast<int>(i));
      const auto& hidden = world_.hidden[at(origin.rank)];
      rows[i] = at(origin.token) < hidden.size() ? hidden[at(origin.token)] : -1;
    }
  }

  // Expert e multiplies by e + 2. For a borrowed expert, e is read from its slot.
  void multiply(int chunk, int round) {
    const RankTables& t = routes(chunk).rank(me_);
    for (int g = 0; g < t.shape.num_groups(); ++g) {
      const int borrowed = g - t.shape.num_natives;
      if (round != std::max(borrowed, 0) / t.shape.borrow_slots) continue;
      const int expert =
          borrowed < 0 ? native(t, g) : world_.slots[at(me_)][at(borrowed % t.shape.borrow_slots)];
      for (std::int32_t p = t.group_begin[at(g)]; p < t.group_begin[at(g) + 1]; ++p)
        world_.results[at(me_)][at(t.output_row[at(p)])] =
            world_.rows[at(me_)][at(t.input_row[at(p)])] * (expert + 2);
    }
  }
  static int native(const RankTables& t, int group) {
    return static_cast<int>(std::ranges::find(t.group_of, group) - t.group_of.begin());
  }

  void add_up(int chunk) {
    const HostRoutes& own_routes = routes(chunk);
    const RankTables& t = own_routes.rank(me_);
    auto& output = world_.outputs[at(step_)][at(me_)];
    output.resize(at(world_.tokens(me_)));
    if (chunk >= own_routes.num_chunks()) return;
    const std::int64_t first = own_routes.first_token(me_, chunk);
    for (std::int64_t token = 0; token < own_routes.tokens(me_, chunk); ++token) {
      std::int64_t sum = 0;
      for (std::int64_t a = token * t.shape.top_k; a < (token + 1) * t.shape.top_k; ++a) {
        const std::int32_t rank = t.destination[at(a)];
        if (rank < 0) continue;
        const std::int32_t begin = own_routes.rank(rank).in_position[at(me_)];
        const std::size_t result = at(begin + t.entry[at(a)] - t.out_begin[at(rank)]);
        const auto& results = world_.results[at(rank)];
        sum += result < results.size() ? results[result] : -1;
      }
      output[at(first + token)] = sum;
    }
  }

  World& world_;
  int me_;
  FakeStream& stream_;
  FakeStream& side_;
  cuda::StreamBarrier& barrier_;
  int step_;
  int chunk_ = 0;
  int barriers_ = 0;
  std::optional<StreamFork> weights_;
};

// Runs kSteps steps and returns the number of wrong token sums.
int wrong_sums(unsigned seed, const Fault& fault) {
  World world(seed, fault);
  const cuda::RouteShape& shape = world.routes[0]->rank(0).shape;
  run_ranks(world.choices.num_ranks(), [&](Communicator& comm) {
    const int me = comm.rank().value();
    FakeStream stream(world.device), side(world.device);
    cuda::StreamBarrier barrier(comm);
    std::vector<std::unique_ptr<FakeStep>> steps;  // enqueued work refers to them
    for (int step = 0; step < kSteps; ++step) {
      steps.push_back(std::make_unique<FakeStep>(world, me, stream, side, barrier, step));
      cuda::order_forward(*steps.back(), shape.most_chunks, shape.borrow_rounds);
    }
    barrier.gather();
    stream.synchronize();  // runs little besides the work that the streams' ends need
    barrier.gather();
    if (me == 0) world.device.reach_all();
    barrier.gather();
  });
  int wrong = 0;
  for (int step = 0; step < kSteps; ++step)
    for (int r = 0; r < world.choices.num_ranks(); ++r)
      for (std::int64_t token = 0; token < world.tokens(r); ++token) {
        std::int64_t expected = 0;
        for (int i = 0; i < world.choices.k; ++i)
          if (const std::int32_t e = world.choices.ids[at(r)][at(token * world.choices.k + i)]; e >= 0)
            expected += element(r, token, step) * (e + 2);
        wrong += world.outputs[at(step)][at(r)][at(token)] != expected;
      }
  return wrong;
}

TEST(StepOrder, MakesEverySumRightHoweverLateTheDeviceIs) {
  for (unsigned seed = 0; seed < 60; ++seed) EXPECT_EQ(wrong_sums(seed, {}), 0) << "seed " << seed;
}

int seeds_that_show(const Fault& fault) {
  int shown = 0;
  for (unsigned seed = 0; seed < 40; ++seed) shown += wrong_sums(seed, fault) > 0;
  return shown;
}

TEST(StepOrder, IsWrongWithoutTheBarrierBetweenExpertsAndCombine) {
  EXPECT_GT(seeds_that_show({.barrier_left_out = 2}), 5);
}

TEST(StepOrder, IsWrongWhereOutboxesDoNotTakeTurns) {
  EXPECT_GT(seeds_that_show({.without_turns = true}), 0);
}

TEST(StepOrder, IsWrongWhereExpertsDoNotWaitForBorrowedWeights) {
  EXPECT_GT(seeds_that_show({.weights_late = true}), 5);
}

}  // namespace
}  // namespace evenkeel::testing
