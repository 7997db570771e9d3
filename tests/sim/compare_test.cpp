// Laws of every comparison, and expected results of single ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/sim/compare_recordings.h"
#include "evenkeel/topology/presets.h"
#include "tests/routing/message.h"
#include "tests/sim/recordings.h"

namespace evenkeel {
namespace {

using testing::load_recording;
using testing::trace_recording;

ModelDescription small_model(int experts, int top_k) {
  ModelDescription model;
  model.hidden = 256;
  model.experts = {.count = experts, .top_k = top_k, .intermediate = 128};
  model.dtype = "bfloat16";
  model.dtype_bytes = 2;
  return model;
}

CompareRequest request_of(const char* topology, int experts, int top_k) {
  return {.machine = {.topology = preset_topology(topology),
                      .topology_has_links = true,
                      .model = small_model(experts, top_k),
                      .device = std::string(preset_device(topology)),
                      .planner = {.min_segment = 8}}};
}

ComparedRecordings compared(const Recording& recording, const CompareRequest& request) {
  return compare_recordings(std::span(&recording, 1), {}, request);
}

const MethodResult& method(const ComparedRecordings& all, std::string_view name) {
  return *std::ranges::find_if(all.comparison.methods,
                               [&](const MethodResult& each) { return each.method.name == name; });
}

// Every method computes all assignments, and the bytes between ranks are those within nodes plus those
// between nodes.
TEST(Comparison, OfRandomTracesLosesNothing) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Recording recording = trace_recording(2, 16, 3, 2400, seed % 2 == 0 ? 60 : 0, seed);
    CompareRequest request = request_of(seed % 3 == 0 ? "4x8xh100" : "2x4xh100", 16, 3);
    request.machine.backward = seed % 4 > 1;
    request.machine.budget = std::int64_t{1} << 20;
    const ComparedRecordings all = compared(recording, request);
    for (const MethodResult& each : all.comparison.methods) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << each.method.name);
      double pairs = 0, steps = 0;
      for (const auto& group : each.pair_bytes) pairs += std::reduce(group.begin(), group.end());
      for (const StepFigures& step : each.steps) {
        steps += step.bytes_within + step.bytes_across;
        EXPECT_GE(step.max_over_mean, 1 - 1e-12);
        EXPECT_GE(step.load_most, 1 - 1e-12);
        EXPECT_LE(step.load_least, 1 + 1e-12);
        EXPECT_GT(step.seconds, 0);
        const bool bounded = each.method.memory != Method::Memory::unlimited;
        EXPECT_TRUE(!bounded || step.peak_bytes <= *request.machine.budget) << step.peak_bytes;
      }
      EXPECT_NEAR(pairs, steps, pairs * 1e-12);
      if (each.method.fsdp) continue;
      const auto& at = each.picture.at;
      const auto& plain = method(all, "ep").picture.at;
      EXPECT_EQ(std::reduce(at.begin(), at.end()), std::reduce(plain.begin(), plain.end()));
    }
  }
}

TEST(Comparison, OfLoadsKeepsTheBudget) {
  std::mt19937_64 random(3);
  std::vector<std::vector<std::int64_t>> steps(40, std::vector<std::int64_t>(16));
  for (auto& loads : steps)
    for (std::int64_t& load : loads) load = static_cast<std::int64_t>(random() % 3000);
  const Recording recording = load_recording(steps);
  for (const bool backward : {false, true}) {
    CompareRequest request = request_of("8xh100", 16, 4);
    request.machine.backward = backward;
    request.machine.budget = 700 * 1024;
    request.cut.top_k = 4;
    request.methods = "ep,memfine,best+budget";
    const ComparedRecordings all = compared(recording, request);
    EXPECT_GT(*all.summaries[0].steps_over_budget, 0);
    EXPECT_EQ(all.summaries[1].steps_over_budget, 0);
    EXPECT_EQ(all.summaries[2].steps_over_budget, 0);
  }
}

// `best` and the methods that it combines have the same placement here, and no memory limit.
TEST(Comparison, AllTogetherIsNeverSlowerThanItsParts) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Recording recording = trace_recording(2, 16, 2, 4000, 40, seed, 1 + static_cast<double>(seed % 4));
    CompareRequest request = request_of("2x4xh100", 16, 2);
    request.machine.backward = seed % 2 == 1;
    request.methods = "ep,llep,level,level-links,best";
    const ComparedRecordings all = compared(recording, request);
    const std::vector<StepFigures>& best = method(all, "best").steps;
    for (const MethodResult& part : all.comparison.methods)
      for (std::size_t step = 0; step < best.size(); ++step)
        EXPECT_LE(best[step].seconds, part.steps[step].seconds * (1 + 1e-12))
            << part.method.name << ", seed " << seed;
  }
}

TEST(Comparison, PlacesOnOneHalfAndJudgesTheOther) {
  const Recording recording = trace_recording(1, 8, 2, 4000, 80, 3);
  const ComparedRecordings all = compared(recording, request_of("8xh100", 8, 2));
  EXPECT_EQ(all.comparison.first_judged, 20);
  EXPECT_EQ(all.comparison.num_steps, 20);
  EXPECT_FALSE(all.comparison.same_data);
  const ComparedRecordings from =
      compare_recordings(std::span(&recording, 1), std::span(&recording, 1), request_of("8xh100", 8, 2));
  EXPECT_EQ(from.comparison.num_steps, 40);
  EXPECT_TRUE(from.comparison.same_data);
  Recording other = trace_recording(1, 8, 2, 4000, 80, 4);
  other.name = "other";
  EXPECT_FALSE(compare_recordings(std::span(&recording, 1), std::span(&other, 1), request_of("8xh100", 8, 2))
                   .comparison.same_data);
  const Recording one = load_recording({{5, 1, 2, 7}});
  EXPECT_TRUE(compared(one, {.machine = {.topology = Topology::uniform(1, 2)}}).comparison.same_data);
}

// A nearly balanced model gains little from copies and pays for moving them over slow links. This was
// measured in a server: steps took 3.2x as long although max/mean fell from 1.07 to 1.008.
TEST(Comparison, SaysNoWhereCopiesThatMoveCostMoreThanTheyEven) {
  std::vector<std::vector<std::int64_t>> steps;
  std::mt19937_64 random(5);
  for (int step = 0; step < 800; ++step) {
    std::vector<std::int64_t> loads;
    for (int expert = 0; expert < 64; ++expert)
      loads.push_back(100 + static_cast<std::int64_t>(random() % 12) + (expert / 8 == 3 ? 6 : 0));
    steps.push_back(loads);
  }
  const Recording recording = load_recording(steps);
  CompareRequest request;
  Topology::Description slow = Topology::uniform(8, 1, {50, 0}, {1, 10}).description();
  request.machine = request_of("8xh100", 64, 8).machine;
  request.machine.topology = Topology(slow);
  request.machine.model->hidden = 4096;
  request.machine.model->experts.intermediate = 1536;
  request.methods = "ep,eplb:64";
  request.place_every = 100;
  request.cut.top_k = 8;
  const ComparedRecordings all = compared(recording, request);
  ASSERT_EQ(all.summaries.size(), 3U);  // ep; copies placed once; copies placed repeatedly
  EXPECT_EQ(all.comparison.methods[2].method.name, "eplb:64@100");
  EXPECT_EQ(all.summaries[1].moved_bytes, 0);
  const MethodSummary& moved = all.summaries[2];
  EXPECT_LT(all.summaries[0].max_over_mean.median, 1.1);
  EXPECT_LT(moved.max_over_mean.median, all.summaries[0].max_over_mean.median);
  EXPECT_GT(moved.moved_bytes, 0);
  EXPECT_EQ(moved.answer, MethodSummary::Answer::does_not_pay);
  EXPECT_THAT(moved.sentence, ::testing::HasSubstr("for experts that move to new homes"));
}

// A borrowed expert in a slot is counted once, not once as borrowed and once as held.
TEST(Comparison, CountsASlotOnce) {
  const Recording recording = load_recording({{4000, 10}, {4000, 10}});
  CompareRequest request = request_of("2xh100", 2, 1);
  request.cut.top_k = 1;
  request.methods = "level,slots:1,slots:2";
  const ComparedRecordings all = compared(recording, request);
  EXPECT_GT(all.summaries[1].transfers, 0);
  EXPECT_EQ(all.summaries[2].peak_bytes, all.summaries[1].peak_bytes);
  EXPECT_EQ(*all.summaries[3].peak_bytes - *all.summaries[2].peak_bytes,
            3 * 256 * 128 * 2);  // one empty slot
}

TEST(Comparison, SaysThatDataIsNotEnough) {
  const Recording few = trace_recording(1, 8, 2, 4000, 30, 3);
  const ComparedRecordings all =
      compared(few, {.machine = {.topology = Topology::uniform(1, 4)}, .methods = "ep,level"});
  EXPECT_EQ(all.summaries[1].answer, MethodSummary::Answer::not_enough_data);
  EXPECT_THAT(
      all.summaries[1].sentence,
      ::testing::HasSubstr("20 independent steps are needed to tell it from chance, and there are 15"));
}

TEST(Comparison, OfWhatDoesNotFitIsRefused) {
  const Recording recording = trace_recording(2, 16, 2, 400, 40, 1);
  const auto said = [&](const CompareRequest& request) {
    return message_of<InvalidArgument>([&] { compared(recording, request); });
  };
  CompareRequest request = request_of("8xh100", 8, 2);
  EXPECT_EQ(said(request),
            "model: has 8 experts a layer, but trace has 16; allowed: the config.json of the model that was "
            "recorded");
  request = request_of("8xh100", 16, 2);
  request.methods = "memfine";
  EXPECT_EQ(said(request),
            "methods: memfine needs a budget, and a model that gives the sizes of rows; allowed: a budget "
            "and a model, or a method without memfine and budget");
  request.methods = "level-links";
  EXPECT_EQ(said(request),
            "methods: level-links, but links are unknown or all alike; allowed: level, or a topology "
            "whose links within nodes and across differ");
  request = {.machine = {.topology = Topology::uniform(1, 8)}, .methods = "fsdp"};
  EXPECT_EQ(
      said(request),
      "methods: fsdp needs sizes and rates; allowed: fsdp with a model and a machine, or other methods");
  request = request_of("8xh100", 16, 2);
  request.machine.budget = 10;
  EXPECT_THAT(message_of<BudgetTooSmall>([&] { compared(recording, request); }), ::testing::HasSubstr("10 "));
}

}  // namespace
}  // namespace evenkeel
