#include "evenkeel/io/loads_file.h"

#include <tuple>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

using Loads = std::vector<std::int64_t>;

Counts counts_of(std::string_view json, LoadsOptions options = {}) {
  return read_step_loads(source_of(json), options).of.front().counts;
}

TEST(LoadsFile, OfLoadsByExpertHasNoSources) {
  const Counts counts = counts_of(R"({"loads": [3, 0, 12.0]})", {.num_ranks = 4});
  EXPECT_TRUE(std::ranges::equal(counts.loads(), Loads{3, 0, 12}));
  EXPECT_EQ(counts.num_ranks(), 4);
  EXPECT_FALSE(counts.has_sources());
  EXPECT_EQ(counts_of(R"({"loads": [3, 1], "num_ranks": 2})").num_ranks(), 2);
}

TEST(LoadsFile, OfCountsHasItsRanks) {
  const Counts counts = counts_of(R"({"counts": [[1, 2], [3, 4], [0, 0]]})");
  EXPECT_EQ(counts.num_ranks(), 3);
  EXPECT_EQ(counts.at(RankId(1), ExpertId(0)), 3);
  EXPECT_TRUE(std::ranges::equal(counts.loads(), Loads{4, 6}));
  EXPECT_EQ(counts.total(), 10);
}

TEST(LoadsFile, OfAProfileGivesTheLayerAskedFor) {
  const Counts counts =
      read_step_loads(test_data("profile.safetensors"), {.num_ranks = 2, .layers = {1}}).of.front().counts;
  EXPECT_TRUE(std::ranges::equal(counts.loads(), Loads{3, 4, 5}));
  const std::string json = R"({"loads": [[1, 2], [3, 4]], "transitions": [[[1, 1], [1, 1]]]})";
  EXPECT_TRUE(std::ranges::equal(counts_of(json, {.num_ranks = 2, .layers = {1}}).loads(), Loads{3, 4}));
  EXPECT_TRUE(std::ranges::equal(counts_of(R"({"loads": [[1, 2]]})", {.num_ranks = 2}).loads(), Loads{1, 2}));
}

LoadsOptions on_ranks(int ranks, std::vector<int> layers = {}, const ReadOptions& reading = {}) {
  return {.num_ranks = ranks, .layers = std::move(layers), .reading = reading};
}

TEST(LoadsFile, AsksForTheOptionsItNeedsAndRefusesThoseThatContradictIt) {
  const char *two_layers = R"({"loads": [[1], [2]]})", *one_layer = R"({"loads": [9, 1, 1, 1]})";
  const char* trace = "as: trace, but the file has counts; allowed: to leave it out";
  const ReadOptions as_trace{.axes = "trace"}, seven{.num_experts = 7}, layer_3{.layers = {{3}}},
      two{.layers = {{3, 4}}};
  for (const auto& [json, options, why] : std::vector<std::tuple<const char*, LoadsOptions, const char*>>{
           {R"({"loads": [1]})",
            {},
            "ranks: is not given, and f does not say the number of ranks; allowed: 1 or more"},
           {R"({"loads": [1]})", on_ranks(0), "ranks: 0 ranks; allowed: 1 or more"},
           {two_layers, on_ranks(1, {2}), "layer: no layer 2; allowed: 0..1"},
           {R"({"counts": [[1], [2]]})", on_ranks(3),
            "ranks: 3 ranks, but f has counts of 2 ranks; allowed: 2, or leave it out"},
           {R"({"loads": [1], "num_ranks": 4})", on_ranks(2),
            "ranks: 2 ranks, but f has counts of 4 ranks; allowed: 4, or leave it out"},
           {R"({"loads": [1, 2]})", on_ranks(1, {0}, as_trace), trace},
           {R"({"counts": [[1, 2]]})", on_ranks(1, {0}, as_trace), trace},
           {R"({"loads": [[1, 2]]})", on_ranks(1, {0}, as_trace), trace},
           {one_layer, on_ranks(2, {0}, layer_3), "layer: no layer 0; allowed: 3"},
           {one_layer, on_ranks(2, {}, seven),
            "num_experts: 7, but the file has counts of 4 experts; allowed: 4, or leave it out"},
           {one_layer, on_ranks(2, {}, two),
            "moe_layers: names layers 3-4, but the file has 1 layer without numbers; allowed: 1 layer "
            "number"}})
    EXPECT_EQ(message_of<InvalidArgument>([&] { counts_of(json, options); }), why);
  EXPECT_EQ(read_step_loads(source_of(one_layer), on_ranks(2, {3}, layer_3)).layers, LayerNumbers({3}));
  const LoadsOptions as_counts = on_ranks(1, {0}, {.axes = "counts"});
  EXPECT_EQ(message_of<InvalidArgument>([&] { read_step_loads(test_data("trace.safetensors"), as_counts); }),
            "as: counts, but the file has the tokens of a trace; allowed: to leave it out");
}

TEST(LoadsFile, ThatCannotBeLoadsSaysWhy) {
  std::string wide = "1";
  for (int e = 1; e <= 65536; ++e) wide += ",1";
  for (const auto& [json, why] : std::vector<std::pair<std::string, const char*>>{
           {R"({"load": [1]})", "is JSON, but neither a placement nor a profile, loads or counts"},
           {R"({"loads": [1], "counts": [[1]]})",
            "counts: is there as well as 'loads', and either may be the routing; keep only one of them"},
           {R"({"loads": [1, 2, 3], "num_experts": 4})",
            "num_experts: is 4, but the counts are of 3 experts"},
           {R"({"counts": [[1], [2]], "num_ranks": 3})", "num_ranks: is 3, but the counts are of 2 ranks"},
           {R"({"loads": []})", "loads: is empty"},
           {R"({"counts": []})", "counts: is empty; it must be a list by source rank of lists by expert"},
           {"{\"loads\": [" + wide + "]}", "loads: has 65537 experts; allowed: 1..65536"},
           {"{\"loads\": [[" + wide + "]]}", "loads: has 65537 experts; allowed: 1..65536"},
           {"{\"counts\": [[" + wide + "]]}", "counts: has 65537 experts; allowed: 1..65536"},
           {R"({"loads": [1, 2.5]})", "loads[1]: 2.5 is not a whole number"},
           {R"({"loads": [1, "2"]})", "loads[1]: is a JSON string, not a whole number"},
           {R"({"loads": [1, -2]})", "loads: element 1 is -2; a load is 0 or more"},
           {R"({"loads": [9223372036854775807, 1]})", "loads: the total of loads is above 2^63-1"},
           {R"({"loads": [9223372036854775808]})", "loads[0]: 9223372036854775808 is above 2^63-1"},
           {R"({"loads": [1e300]})", "loads[0]: 1e+300 is not an exact whole number"},
           {R"({"counts": [[1, 2], [3]]})", "counts[1]: has 1 elements, but the first list has 2"}})
    EXPECT_EQ(message_of<ParseError>([&] { counts_of(json, {.num_ranks = 2}); }), std::string("f: ") + why);
  EXPECT_EQ(message_of<ParseError>([] { counts_of(R"({"loads": [1, 2)"); }).substr(0, 14), "f: byte 16: pa");
}

}  // namespace
}  // namespace evenkeel
