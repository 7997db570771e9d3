// Dispatch, experts that multiply by a number, and combine give weighted sums. Each row is sent once to each
// rank that needs it, and gradients return to their source. All numbers are small integers or powers of two,
// so that nothing is rounded.
#include "evenkeel/exchange/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <set>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/recording.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/device/cpu/rows.h"
#include "evenkeel/device/cpu/stream.h"
#include "tests/exchange/random_step.h"
#include "tests/plan/random_nodes.h"
#include "tests/routing/message.h"

namespace evenkeel::testing {
namespace {

constexpr std::int64_t kHidden = 5;

float scale_of(std::int32_t expert) {
  return static_cast<float>(expert % 7 + 1);
}

// The element in `column` of the token's row on `rank`.
float element(int rank, std::size_t token, std::int64_t column) {
  return static_cast<float>(
      (static_cast<std::size_t>(rank) * 31 + token * 7 + static_cast<std::size_t>(column)) % 16);
}

// One rank: its tokens, and the arithmetic of experts on the rows it has received.
class Rank {
 public:
  Rank(const Step& step, Communicator& comm, DataType type)
      : step_(step),
        me_(comm.rank().value()),
        type_(type),
        ids_(step.choices.ids[comm.rank().offset()]),
        tokens_(static_cast<std::int64_t>(ids_.size()) / step.choices.k) {
    std::vector<float> exact;
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens_); ++t)
      for (std::int64_t c = 0; c < kHidden; ++c) exact.push_back(element(me_, t, c));
    rows_.resize(exact.size() * static_cast<std::size_t>(bytes_of(type)));
    rows::from_f32(static_cast<std::int64_t>(exact.size()), exact.data(), rows_.data(), type);
    for (std::size_t a = 0; a < ids_.size(); ++a)
      weights_.push_back(a % 3 == 0 ? 0.5f : a % 3 == 1 ? 1.0f : 2.0f);
  }

  TopK top_k() const { return {tokens_, step_.choices.k, ids_, weights_}; }
  const void* rows() const { return rows_.data(); }
  const std::vector<float>& weights() const { return weights_; }
  std::vector<std::byte> space() const { return std::vector<std::byte>(rows_.size()); }

  void run_experts(const Dispatched& dispatched, const Buffer& results) const {
    run_experts(dispatched, results, dispatched.output_row(), [](std::int64_t) { return true; });
  }

  // Computes only positions for which `wanted` is true; position i writes its result to row[i].
  template <class Wanted>
  void run_experts(const Dispatched& dispatched, const Buffer& results, std::span<const std::int32_t> row,
                   const Wanted& wanted) const {
    for (const Dispatched::Group& group : dispatched.groups())
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        if (!wanted(i)) continue;
        const auto position = static_cast<std::size_t>(i);
        std::vector<float> values =
            row_at(dispatched.rows(rows()), static_cast<std::size_t>(dispatched.input_row()[position]));
        for (float& value : values) value *= scale_of(group.expert.value());
        rows::from_f32(kHidden, values.data(), rows::at(results.data(), row[position] * kHidden, type_),
                       type_);
      }
  }

  void run_experts_backward(const Dispatched& dispatched, const Exchange::IncomingGradients& incoming,
                            const Exchange::RowGradients& computed) const {
    for (const Dispatched::Group& group : dispatched.groups())
      for (auto i = static_cast<std::size_t>(group.begin); i < static_cast<std::size_t>(group.end); ++i) {
        const auto in = static_cast<std::size_t>(dispatched.input_row()[i]);
        const auto out = static_cast<std::size_t>(dispatched.output_row()[i]);
        const float scale = scale_of(group.expert.value()), weight = incoming.router.values[out];
        const std::vector<float> row = row_at(dispatched.rows(rows(), incoming.rows), in);
        for (std::size_t c = 0; c < static_cast<std::size_t>(kHidden); ++c)
          computed.sums.row(static_cast<std::int64_t>(in), kHidden)[c] += weight * scale * row[c];
        incoming.router.gradients[out] = scale * row[1];
      }
  }

  // Checks the output, or the gradient of hidden. Both have the same sums, since experts are linear and the
  // incoming gradient equals the row. Partial sums may have been rounded to bf16 `more_roundings` times.
  void expect_weighted_sums(const std::vector<std::byte>& actual, const std::string& what,
                            int more_roundings = 0) const {
    std::vector<float> sums(static_cast<std::size_t>(tokens_ * kHidden));
    rows::to_f32(tokens_ * kHidden, actual.data(), type_, sums.data());
    const auto k = static_cast<std::size_t>(step_.choices.k);
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens_); ++t)
      for (std::int64_t c = 0; c < kHidden; ++c) {
        float expected = 0;
        for (std::size_t i = t * k; i < (t + 1) * k; ++i)
          if (ids_[i] >= 0) expected += weights_[i] * scale_of(ids_[i]) * element(me_, t, c);
        if (type_ == DataType::bf16) expected = static_cast<float>(bf16(expected));
        const float tolerance = type_ == DataType::bf16 ? static_cast<float>(more_roundings) / 128 : 0;
        ASSERT_NEAR(sums[t * static_cast<std::size_t>(kHidden) + static_cast<std::size_t>(c)], expected,
                    tolerance * expected)
            << what;
      }
  }

  void expect_weight_gradients(const std::vector<float>& actual, const std::string& what) const {
    for (std::size_t a = 0; a < ids_.size(); ++a) {
      const auto token = a / static_cast<std::size_t>(step_.choices.k);
      ASSERT_EQ(actual[a], ids_[a] < 0 ? 0.0f : scale_of(ids_[a]) * element(me_, token, 1)) << what;
    }
  }

 private:
  std::vector<float> row_at(const SplitRows& rows, std::size_t row) const {
    std::vector<float> wide(static_cast<std::size_t>(kHidden));
    rows::to_f32(kHidden, rows.row(static_cast<std::int64_t>(row), kHidden * bytes_of(type_)), type_,
                 wide.data());
    return wide;
  }
  const Step& step_;
  int me_;
  DataType type_;
  const std::vector<std::int32_t>& ids_;
  std::int64_t tokens_;
  std::vector<std::byte> rows_;
  std::vector<float> weights_;
};

// The rows and positions that a rank sends to other ranks, and the number of these ranks, from the deal
// oracle.
struct Sent {
  std::int64_t rows = 0;
  std::int64_t positions = 0;
  std::int64_t peers = 0;
};

Sent sent_by(const Step& step, int rank) {
  const auto to = destinations(step.choices, step.plan)[static_cast<std::size_t>(rank)];
  std::set<std::pair<std::size_t, int>> rows;
  std::set<int> peers;
  Sent sent;
  for (std::size_t a = 0; a < to.size(); ++a) {
    if (to[a] < 0 || to[a] == rank) continue;
    rows.insert({a / static_cast<std::size_t>(step.choices.k), to[a]});
    peers.insert(to[a]);
    ++sent.positions;
  }
  sent.rows = static_cast<std::int64_t>(rows.size());
  sent.peers = static_cast<std::int64_t>(peers.size());
  return sent;
}

void expect_bytes(const RecordingCommunicator& recorded, const Sent& sent, std::int64_t row_bytes) {
  EXPECT_EQ(recorded.record("dispatch indices").bytes_sent, 4 * (sent.positions + sent.peers));
  EXPECT_EQ(recorded.record("dispatch").bytes_sent, sent.rows * row_bytes);
  EXPECT_EQ(recorded.record("combine").bytes_received, sent.positions * row_bytes);
  EXPECT_EQ(recorded.record("dispatch router weights").bytes_sent, 4 * sent.positions);
  EXPECT_EQ(recorded.record("dispatch gradients").bytes_sent, sent.rows * row_bytes);
  EXPECT_EQ(recorded.record("combine gradients").bytes_received, sent.rows * row_bytes + 4 * sent.positions);
}

class Exchanged : public ::testing::TestWithParam<DataType> {};

// Runs one rank's forward and backward exchange and checks its results.
void step_there_and_back(const Step& step, Communicator& comm, Exchange& exchange, Arena& arena,
                         DataType type, const std::string& what, bool sums_in_nodes = false) {
  const Rank rank(step, comm, type);
  std::vector<std::byte> output = rank.space(), grad_hidden = rank.space();
  std::vector<float> grad_weights(rank.weights().size());
  {
    const Dispatched dispatched =
        exchange.dispatch(rank.rows(), rank.top_k(), step.choices.counts(), step.plan);
    {
      const Buffer results = exchange.result_buffer(dispatched);
      rank.run_experts(dispatched, results);
      exchange.combine(dispatched, results, rank.weights(), output.data());
    }
    const Exchange::IncomingGradients incoming =
        exchange.dispatch_gradients(dispatched, rank.rows(), rank.weights());
    const Exchange::RowGradients computed = exchange.gradient_buffer(dispatched, grad_hidden.data());
    rank.run_experts_backward(dispatched, incoming, computed);
    exchange.combine_gradients(dispatched, computed, incoming.router, grad_hidden.data(), grad_weights);
  }
  rank.expect_weighted_sums(output, what + ", output", sums_in_nodes ? 2 : 0);
  if (type == DataType::f32) rank.expect_weighted_sums(grad_hidden, what + ", gradient");
  rank.expect_weight_gradients(grad_weights, what);
  EXPECT_EQ(arena.in_use_bytes(), 0);
}

TEST_P(Exchanged, RowsComeBackAsWeightedSumsAndGradientsLikewiseWithNoRowSentTwice) {
  const DataType type = GetParam();
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Step step = random_step(seed);
    run_ranks(step.choices.num_ranks(), [&](Communicator& comm) {
      RecordingCommunicator recorded(comm);
      Arena arena(Device::cpu());
      CpuStream stream;
      Exchange exchange(recorded, stream, arena, kHidden, type);
      step_there_and_back(step, comm, exchange, arena, type, "seed " + std::to_string(seed));
      expect_bytes(recorded, sent_by(step, comm.rank().value()), kHidden * bytes_of(type));
    });
  }
}

// The rows of a rank that must cross to other nodes: each token's row goes once to every other node that
// computes one of its assignments.
std::int64_t rows_between_nodes(const Step& step, int rank, const std::vector<int>& nodes) {
  const auto to = destinations(step.choices, step.plan)[static_cast<std::size_t>(rank)];
  std::set<std::pair<std::size_t, int>> rows;
  for (std::size_t a = 0; a < to.size(); ++a) {
    if (to[a] < 0) continue;
    const int node = nodes[static_cast<std::size_t>(to[a])];
    if (node != nodes[static_cast<std::size_t>(rank)])
      rows.insert({a / static_cast<std::size_t>(step.choices.k), node});
  }
  return static_cast<std::int64_t>(rows.size());
}

// With sums in nodes, as many rows cross on the way home.
TEST_P(Exchanged, InTwoLevelsEachRowCrossesOnceToANodeAndNoneIsLostOrSentTwice) {
  const DataType type = GetParam();
  const std::int64_t row_bytes = kHidden * bytes_of(type);
  std::int64_t passed_on = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    const Step step = random_step(seed);
    std::mt19937 random(seed);
    const std::vector<int> nodes = random_nodes(step.choices.num_ranks(), random);
    const bool sums = random() % 2 == 0;
    std::atomic<std::int64_t> bytes[4] = {0, 0, 0, 0};
    std::int64_t rows = 0;
    for (int rank = 0; rank < step.choices.num_ranks(); ++rank) rows += sent_by(step, rank).rows;
    run_ranks(step.choices.num_ranks(), [&](Communicator& comm) {
      RecordingCommunicator recorded(comm, nodes);
      Arena arena(Device::cpu());
      CpuStream stream;
      Exchange exchange(recorded, stream, arena, kHidden, type, Nodes(nodes), sums);
      step_there_and_back(step, comm, exchange, arena, type, "seed " + std::to_string(seed), sums);
      const std::int64_t least = rows_between_nodes(step, comm.rank().value(), nodes) * row_bytes;
      for (const std::string way : {"dispatch", "dispatch gradients"}) {
        EXPECT_EQ(recorded.record(way).bytes_sent_between_nodes, least) << "seed " << seed;
        EXPECT_EQ(recorded.record(way + " in the node").bytes_sent_between_nodes, 0);
      }
      bytes[0] += recorded.record("dispatch").bytes_sent;
      bytes[1] += recorded.record("dispatch in the node").bytes_sent;
      if (!sums) {
        EXPECT_EQ(recorded.record("combine").bytes_received,
                  sent_by(step, comm.rank().value()).positions * row_bytes);
        return;
      }
      const std::int64_t numbers = 4 * sent_by(step, comm.rank().value()).positions;
      EXPECT_EQ(recorded.record("combine").bytes_received, recorded.record("dispatch").bytes_sent);
      EXPECT_EQ(recorded.record("combine gradients").bytes_received,
                recorded.record("dispatch gradients").bytes_sent + numbers);
      EXPECT_EQ(recorded.record("dispatch router weights").bytes_sent, 2 * numbers);
      bytes[2] += recorded.record("combine in the node").bytes_sent;
      bytes[3] += recorded.record("combine gradients in the node").bytes_sent;
    });
    EXPECT_EQ(bytes[0] + bytes[1], rows * row_bytes) << "seed " << seed;
    for (int way : {2, 3}) EXPECT_EQ(bytes[way], sums ? bytes[1].load() : 0) << "seed " << seed;
    passed_on += bytes[1];
  }
  EXPECT_GT(passed_on, 500 * row_bytes);
}

TEST(Nodes, AreNumberedFromZeroWithoutGaps) {
  const auto refused = [](std::vector<int> nodes) {
    return message_of<InvalidArgument>([&] { Nodes{nodes}; });
  };
  EXPECT_EQ(refused({0, 2, 2}), "nodes: node 1 has 0 ranks; allowed: 1..32");
  EXPECT_EQ(refused({0, -1}), "nodes: rank 1 is on node -1; allowed: nodes numbered from 0 without gaps");
  EXPECT_EQ(refused({0, 7}), "nodes: rank 1 is on node 7; allowed: nodes numbered from 0 without gaps");
  EXPECT_EQ(refused(std::vector<int>(33)), "nodes: node 0 has 33 ranks; allowed: 1..32");
  EXPECT_FALSE(Nodes(std::vector<int>{0, 0, 0}).two_levels());
  EXPECT_FALSE(Nodes(std::vector<int>{0, 1, 2}).two_levels());
}

// For some experts, results of the rank's own tokens are computed and summed a few tokens at a time. This
// needs fewer rows and gives the same bits.
TEST_P(Exchanged, SumsTheSameFromResultsHeldInRanges) {
  const DataType type = GetParam();
  std::atomic<std::int64_t> ranges = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Step step = random_step(seed);
    std::mt19937 nodes_random(seed);
    const Nodes nodes(random_nodes(step.choices.num_ranks(), nodes_random));
    run_ranks(step.choices.num_ranks(), [&](Communicator& comm) {
      Arena arena(Device::cpu());
      CpuStream stream;
      Exchange exchange(comm, stream, arena, kHidden, type, nodes, seed % 3 == 0);
      const Rank rank(step, comm, type);
      std::vector<std::byte> output = rank.space(), by_range = rank.space();
      const Dispatched dispatched =
          exchange.dispatch(rank.rows(), rank.top_k(), step.choices.counts(), step.plan);
      {
        const Buffer results = exchange.result_buffer(dispatched);
        rank.run_experts(dispatched, results);
        exchange.combine(dispatched, results, rank.weights(), output.data());
      }
      std::mt19937 random(seed);
      std::vector<std::uint8_t> in_ranges(static_cast<std::size_t>(step.plan.num_experts()));
      for (std::uint8_t& in : in_ranges) in = random() % 2 == 0 ? 1 : 0;
      ResultRows rows;
      rows.open(dispatched, comm.rank(), in_ranges);
      rows.set_rows_per_range(step.choices.k + static_cast<std::int64_t>(random() % 4));
      EXPECT_LE(rows.rows(), dispatched.positions_here + dispatched.positions_elsewhere);
      std::vector<std::int32_t> row(static_cast<std::size_t>(dispatched.positions_here));
      rows.fill(row);
      const Buffer results = exchange.result_buffer(rows);
      std::ranges::fill(results.bytes(), std::byte{0xff});
      const auto is_in_run = [&](std::int64_t i) {
        return std::ranges::any_of(rows.runs(),
                                   [&](const LocalRun& run) { return run.begin <= i && i < run.end; });
      };
      rank.run_experts(dispatched, results, row, [&](std::int64_t i) { return !is_in_run(i); });
      exchange.return_results(dispatched, results, rows, rank.weights()).wait();
      while (rows.next_range(row)) {
        ++ranges;
        rank.run_experts(dispatched, results, row, [&](std::int64_t i) {
          return std::ranges::any_of(
              rows.runs(), [&](const LocalRun& run) { return run.range_begin <= i && i < run.range_end; });
        });
        exchange.sum_results(dispatched, results, rows, rank.weights(), by_range.data());
      }
      EXPECT_EQ(by_range, output) << "seed " << seed;
    });
  }
  EXPECT_GT(ranges, 200);
}

// The error message of dispatch() on one rank with two tokens and three experts, after `change`.
std::string refusal(const std::function<void(TopK&, Counts&, StepPlan&)>& change) {
  const std::vector<std::int32_t> ids{0, 1, 1, -1};
  const std::vector<float> weights(4, 1.0f);
  const std::vector<float> hidden(2 * kHidden);
  const Choices choices{3, 2, {ids}};
  TopK top_k{2, 2, ids, weights};
  Counts counts = choices.counts();
  StepPlan plan;
  make_planner({PlannerOptions::Kind::ep})->plan(counts, LayerPlacement::contiguous(3, 1), plan);
  change(top_k, counts, plan);
  std::string message;
  run_ranks(1, [&](Communicator& comm) {
    Arena arena(Device::cpu());
    CpuStream stream;
    Exchange exchange(comm, stream, arena, kHidden, DataType::f32);
    message = message_of<InvalidArgument>([&] { exchange.dispatch(hidden.data(), top_k, counts, plan); });
  });
  return message;
}

TEST(Dispatch, RefusesChoicesCountsAndAPlanThatAreNotOfOneStep) {
  const std::vector<std::int32_t> others{0, 1, 2, -1}, outside{0, 1, 3, -1};
  const auto plan_of = [](const std::vector<std::int32_t>& ids, int experts, int ranks, StepPlan& plan) {
    Choices choices{experts, 2, {ids}};
    choices.ids.resize(static_cast<std::size_t>(ranks));
    make_planner({PlannerOptions::Kind::ep})
        ->plan(choices.counts(), LayerPlacement::contiguous(experts, ranks), plan);
  };
  EXPECT_EQ(refusal([&](TopK& top_k, Counts&, StepPlan&) { top_k.experts = others; }),
            "top_k: 1 choices of expert 1; allowed: the 2 in the counts of rank 0");
  EXPECT_EQ(refusal([&](TopK& top_k, Counts&, StepPlan&) { top_k.experts = outside; }),
            "top_k: expert id 3; allowed: -1..2");
  EXPECT_EQ(refusal([&](TopK& top_k, Counts&, StepPlan&) { top_k.tokens = 3; }),
            "top_k: 4 choices; allowed: 3 tokens x 2");
  EXPECT_EQ(refusal([&](TopK&, Counts&, StepPlan& plan) { plan_of(others, 3, 1, plan); }),
            "plan: has 1 assignments of expert 1; allowed: the 2 in the counts");
  EXPECT_EQ(refusal([&](TopK&, Counts&, StepPlan& plan) { plan_of(others, 4, 1, plan); }),
            "plan: has 4 experts; allowed: 3, as in the counts");
  EXPECT_EQ(refusal([&](TopK&, Counts&, StepPlan& plan) { plan_of(others, 4, 2, plan); }),
            "counts: have 1 ranks, and the plan has 2; allowed: the communicator's 1 in both");
  const std::vector<std::int64_t> loads{1, 2, 0};
  EXPECT_EQ(refusal([&](TopK&, Counts& counts, StepPlan&) { counts = Counts::of_loads(loads, 1); }),
            "counts: have only total loads; allowed: counts by rank");
}

INSTANTIATE_TEST_SUITE_P(Types, Exchanged, ::testing::Values(DataType::f32, DataType::bf16));

}  // namespace
}  // namespace evenkeel::testing
