// The order in which ranks hand a step to their streams, run on a device that does its work as late as
// streams and events allow: with the meetings that there are every token's sum is right, and without one it
// is not.
#include <gtest/gtest.h>

#include <array>

#include "evenkeel/balance/planner.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/exchange/cuda/internal/inward.h"
#include "evenkeel/exchange/cuda/meeting.h"
#include "evenkeel/layer/cuda/internal/step_order.h"
#include "tests/exchange/cuda/host_routes.h"
#include "tests/support/fake_device.h"

namespace evenkeel::testing {
namespace {

constexpr int kSteps = 3;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// The memory of all ranks, which the others' work reads. Tables are made by the code that kernels wrap.
struct World {
  World(unsigned seed, bool in_turns) : device(seed), turns(in_turns ? 2 : 1) {
    std::mt19937 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 4);
    choices = random_choices(random, ranks);
    placement = random_placement(random, choices.num_experts, ranks, false);
    make_planner({PlannerOptions::Kind::least_loaded, 1000, 3, 0})->plan(choices.counts(), placement, plan);
    std::int64_t most = 1;
    for (const std::int64_t load : plan.rank_loads()) most = std::max(most, load);
    // Room for every chunk, and for several of them.
    const HostRoutesOptions options{
        .num_slices = 32, .most_chunks = 4, .most_positions = static_cast<std::int32_t>(most)};
    for (auto& each : routes) each = std::make_unique<HostRoutes>(choices, placement, plan, options);
    hidden.resize(at(ranks));
    rows.resize(at(ranks));
    results.resize(at(ranks));
    for (auto& of_step : outputs) of_step.resize(at(ranks));
  }

  std::int64_t tokens(int rank) const {
    return static_cast<std::int64_t>(choices.ids[at(rank)].size()) / choices.k;
  }

  FakeDevice device;
  int turns;
  Choices choices;
  LayerPlacement placement = LayerPlacement::contiguous(1, 1);
  StepPlan plan;
  std::array<std::unique_ptr<HostRoutes>, 2> routes;  // by turn, as the layer's outboxes
  std::vector<std::vector<std::int64_t>> hidden, rows, results;
  std::array<std::vector<std::vector<std::int64_t>>, kSteps> outputs;
};

std::int64_t element(int rank, std::int64_t token, int step) {
  return 1 + rank + 7 * token + 1000 * step;
}

// One rank's step: what CudaMoeLayer launches, as work of the made-up device.
class FakeStep {
 public:
  FakeStep(World& world, int me, FakeStream& stream, cuda::Meeting& meeting, int step, int left_out)
      : world_(world), me_(me), stream_(stream), meeting_(meeting), step_(step), left_out_(left_out) {}

  void meet() {
    if (meetings_++ != left_out_) return meeting_.meet(stream_);
    meeting_.gather();
  }
  // The caller's tensor, which it changes from step to step on the same stream.
  void publish() {
    stream_.launch([this] {
      auto& own = world_.hidden[at(me_)];
      own.resize(at(world_.tokens(me_)));
      for (std::size_t t = 0; t < own.size(); ++t) own[t] = element(me_, static_cast<std::int64_t>(t), step_);
    });
  }
  void count() {}
  void plan() {}
  void deal(int chunk) {
    stream_.launch([this, chunk] { routes(chunk).send(me_, chunk); });
  }
  void receive(int chunk) {
    stream_.launch([this, chunk] { routes(chunk).receive(me_); });
    stream_.launch([this, chunk] { gather(chunk); });
  }
  void run_experts(int chunk) {
    stream_.launch([this, chunk] { multiply(chunk); });
  }
  void combine(int chunk) {
    stream_.launch([this, chunk] { add_up(chunk); });
  }

 private:
  HostRoutes& routes(int chunk) { return *world_.routes[at(chunk % world_.turns)]; }

  void gather(int chunk) {
    const RankTables& t = routes(chunk).rank(me_);
    const auto outboxes = routes(chunk).outboxes();
    const cuda::Inward inward(t.shape, t.step, t.chunk, outboxes.data());
    auto& rows = world_.rows[at(me_)];
    rows.assign(at(std::max(0, inward.rows())), 0);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto origin = inward.origin(static_cast<int>(i));
      const auto& hidden = world_.hidden[at(origin.rank)];
      rows[i] = at(origin.token) < hidden.size() ? hidden[at(origin.token)] : -1;
    }
  }

  // Expert e multiplies by e + 2.
  void multiply(int chunk) {
    const RankTables& t = routes(chunk).rank(me_);
    auto& results = world_.results[at(me_)];
    results.assign(at(t.shape.most_positions), -1);
    for (int e = 0; e < t.shape.num_experts; ++e) {
      const int g = t.group_of[at(e)];
      for (std::int32_t p = g < 0 ? 0 : t.group_begin[at(g)]; g >= 0 && p < t.group_begin[at(g) + 1]; ++p)
        results[at(t.output_row[at(p)])] = world_.rows[at(me_)][at(t.input_row[at(p)])] * (e + 2);
    }
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
  cuda::Meeting& meeting_;
  int step_;
  int left_out_;
  int meetings_ = 0;
};

// How many tokens' sums over some steps are not what they should be. `left_out`: the number of a meeting in
// each step at which only the host threads meet.
int wrong_sums(unsigned seed, int left_out, bool in_turns = true) {
  World world(seed, in_turns);
  const int chunks = world.routes[0]->rank(0).shape.most_chunks;
  run_ranks(world.choices.num_ranks(), [&](Communicator& comm) {
    const int me = comm.rank().value();
    FakeStream stream(world.device);
    cuda::Meeting meeting(comm);
    std::vector<std::unique_ptr<FakeStep>> steps;  // work handed over refers to them
    for (int step = 0; step < kSteps; ++step) {
      steps.push_back(std::make_unique<FakeStep>(world, me, stream, meeting, step, left_out));
      cuda::order_forward(*steps.back(), chunks);
    }
    meeting.gather();
    if (me == 0) world.device.reach_all();
    meeting.gather();
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
  for (unsigned seed = 0; seed < 60; ++seed) EXPECT_EQ(wrong_sums(seed, -1), 0) << "seed " << seed;
}

int seeds_that_show(int left_out, bool in_turns) {
  int shown = 0;
  for (unsigned seed = 0; seed < 40; ++seed) shown += wrong_sums(seed, left_out, in_turns) > 0;
  return shown;
}

TEST(StepOrder, IsWrongWithoutTheMeetingBetweenExpertsAndCombine) {
  EXPECT_GT(seeds_that_show(2, true), 5);
}

TEST(StepOrder, IsWrongWhereOutboxesDoNotTakeTurns) {
  EXPECT_GT(seeds_that_show(-1, false), 0);
}

}  // namespace
}  // namespace evenkeel::testing
