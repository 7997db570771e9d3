#include "evenkeel/sim/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;

constexpr const char* kAllowed =
    "; allowed: homes (contiguous, eplb:R, moetuner, joint or joint:R, robust or robust:R), a step (ep, "
    "llep, "
    "level, level-links, slots:S, best), memory (memfine, budget), two-levels and node-sums joined by +, or "
    "fsdp, or "
    "all";

TEST(Method, IsPartsJoined) {
  const Method method = parse_method("eplb:32+level+budget");
  EXPECT_EQ(method.homes, Method::Homes::eplb);
  EXPECT_EQ(method.copies, 32);
  EXPECT_EQ(method.step, Method::Step::level);
  EXPECT_EQ(method.memory, Method::Memory::budget);
  EXPECT_EQ(method.name, "eplb:32+level+budget");
  EXPECT_EQ(method.description(),
            "32 copies of popular experts; each step's excess moves until ranks are level; in chunks that "
            "fit the budget");
  EXPECT_EQ(parse_method("slots:4").slots, 4);
  EXPECT_TRUE(parse_method("fsdp").fsdp);
  EXPECT_FALSE(parse_method("contiguous+llep").is_placed());
}

TEST(Method, HasCopiesInJointAndRobustHomesIfItSaysSo) {
  const Method joint = parse_method("joint:16+llep");
  EXPECT_EQ(joint.homes, Method::Homes::joint);
  EXPECT_EQ(joint.copies, 16);
  EXPECT_EQ(
      joint.description(),
      "homes by load and traffic together, with 16 copies of popular experts; each step's excess moves as "
      "LLEP moves it");
  EXPECT_EQ(parse_method("robust:8").copies, 8);
  EXPECT_EQ(parse_method("robust").copies, 0);
  EXPECT_EQ(parse_method("robust").description(),
            "homes that are level on every part of the recording; nothing moves");
}

TEST(Method, OfNothingKnownIsRefusedWithWhatThereIs) {
  const auto said = [](const char* text) { return message_of<InvalidArgument>([&] { parse_method(text); }); };
  EXPECT_EQ(said("fast"), std::string("methods: 'fast' is no part of a method") + kAllowed);
  EXPECT_EQ(said(""), std::string("methods: '' is no part of a method") + kAllowed);
  EXPECT_EQ(said("level+fsdp"),
            std::string("methods: 'level+fsdp': 'fsdp' cannot be combined with other parts") + kAllowed);
  EXPECT_EQ(said("llep+level"),
            std::string("methods: 'llep+level': 'level' does not go with an earlier part of the same kind") +
                kAllowed);
  EXPECT_EQ(said("eplb"), std::string("methods: 'eplb' needs a number, as in eplb:8") + kAllowed);
  EXPECT_EQ(said("level:3"), std::string("methods: 'level:3' takes no number") + kAllowed);
  EXPECT_EQ(said("moetuner:8"), std::string("methods: 'moetuner:8' takes no number") + kAllowed);
  EXPECT_EQ(said("robust:0"), std::string("methods: 'robust:0' needs a whole number in 1..65536") + kAllowed);
  EXPECT_EQ(said("eplb:0"), std::string("methods: 'eplb:0' needs a whole number in 1..65536") + kAllowed);
}

std::vector<std::string> names(const std::vector<Method>& methods) {
  std::vector<std::string> all;
  for (const Method& each : methods) all.push_back(each.name);
  return all;
}

TEST(UsualMethods, AreThoseThatCanBeCompared) {
  EXPECT_THAT(names(usual_methods({.num_experts = 32, .num_ranks = 8})),
              ElementsAre("ep", "eplb", "moetuner", "robust", "llep", "level", "slots", "all"));
  EXPECT_THAT(names(usual_methods({32, 8, true, true, true, true, true})),
              ElementsAre("ep", "fsdp", "eplb", "moetuner", "robust", "llep", "level", "level-links",
                          "memfine", "all"));
  EXPECT_THAT(names(usual_methods({32, 8, true, true, true, true, false})),
              ElementsAre("ep", "fsdp", "eplb", "moetuner", "robust", "llep", "level", "level-links",
                          "two-levels", "all"));
}

TEST(UsualMethods, LeaveOutCopiesOnOneRankAndSlotsForOneExpert) {
  EXPECT_THAT(names(usual_methods({.num_experts = 1, .num_ranks = 1})),
              ElementsAre("ep", "moetuner", "robust", "llep", "level", "all"));
}

TEST(UsualMethods, HaveEquallyManyCopiesOnEveryRank) {
  for (const auto& [experts, ranks, copies] :
       {std::tuple{32, 8, 8}, {256, 8, 32}, {256, 64, 64}, {100, 8, 12}}) {
    const std::vector<Method> methods = parse_methods("eplb", {.num_experts = experts, .num_ranks = ranks});
    EXPECT_EQ(methods.front().copies, copies) << experts << " experts on " << ranks;
    EXPECT_EQ((experts + copies) % ranks, 0);
  }
}

TEST(UsualMethods, CopyExpertsInAllTogetherWhereModelsAreServed) {
  const auto all = [](const Known& known) { return parse_methods("all", known).front(); };
  Known known{.num_experts = 32, .num_ranks = 8};
  EXPECT_EQ(all(known).homes, Method::Homes::robust);
  EXPECT_EQ(all(known).copies, parse_methods("eplb", known).front().copies);
  known.backward = true;
  EXPECT_EQ(all(known).homes, Method::Homes::robust);
  EXPECT_EQ(all(known).copies, 0);
}

TEST(Methods, AreNamesOfUsualOnesAndCombinations) {
  const Known known{32, 8, true, true, true, false, true};
  const std::vector<Method> methods = parse_methods("all,robust+slots:3", known);
  EXPECT_THAT(names(methods), ElementsAre("all", "robust+slots:3"));
  EXPECT_EQ(methods[0].step, Method::Step::best);
  EXPECT_EQ(methods[0].memory, Method::Memory::budget);
  EXPECT_EQ(message_of<InvalidArgument>([&] { parse_methods("ep,ep", known); }),
            "methods: 'ep' twice; allowed: each method once");
}

}  // namespace
}  // namespace evenkeel
