// Arrays without a name: every order of axes that a user may give, the error that asks for an order if none
// is given, and files that contradict the given order.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>

#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/trace_file.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using NamelessArray = InFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Shape = std::vector<std::int64_t>;
using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t num_tokens = 7, num_layers = 3, top_k = 2, num_experts = 5;

// Random ids, [tokens, layers, k], in which no row repeats an expert.
Numbers random_ids(unsigned seed) {
  std::mt19937 random(seed);
  Numbers ids;
  for (std::int64_t row = 0; row < num_tokens * num_layers; ++row) {
    Numbers experts(num_experts);
    std::iota(experts.begin(), experts.end(), 0);
    std::shuffle(experts.begin(), experts.end(), random);
    ids.insert(ids.end(), experts.begin(), experts.begin() + top_k);
  }
  return ids;
}

// Every axis order a trace may have; the numbers are positions in [tokens, layers, k].
const std::map<std::string, std::array<std::size_t, 3>> orders = {
    {"tokens,layers,k", {0, 1, 2}}, {"tokens,k,layers", {0, 2, 1}}, {"layers,tokens,k", {1, 0, 2}}};

// The shape and the ids after reordering axes. `usual` is the given ids' shape, [tokens, layers, k].
std::pair<Shape, Numbers> in_order(const std::string& axes, const Numbers& ids,
                                   const Shape& usual = {num_tokens, num_layers, top_k}) {
  const auto& [x, y, z] = orders.at(axes);
  Numbers turned;
  Shape at(3);
  for (at[x] = 0; at[x] < usual[x]; ++at[x])
    for (at[y] = 0; at[y] < usual[y]; ++at[y])
      for (at[z] = 0; at[z] < usual[z]; ++at[z])
        turned.push_back(ids[static_cast<std::size_t>((at[0] * usual[1] + at[1]) * usual[2] + at[2])]);
  return {{usual[x], usual[y], usual[z]}, turned};
}

std::string list_of(const Shape& shape, const Numbers& numbers, std::size_t dimension, std::size_t& at) {
  if (dimension == shape.size()) return std::to_string(numbers[at++]);
  std::string text = "[";
  for (std::int64_t i = 0; i < shape[dimension]; ++i)
    text += (i > 0 ? "," : "") + list_of(shape, numbers, dimension + 1, at);
  return text + "]";
}

std::string question_about(const ByteSource& source, const ReadOptions& options = {}) {
  return recording_refusal<InvalidArgument>(source, options);
}

TEST_F(NamelessArray, IsReadInEveryOrderOfATraceThatIsSaid) {
  for (const auto& [axes, order] : orders)
    for (unsigned seed = 0; seed < 5; ++seed) {
      const Numbers ids = random_ids(seed);
      const auto [shape, numbers] = in_order(axes, ids);
      std::size_t at = 0;
      write_text(folder / "a.json", list_of(shape, numbers, 0, at));
      for (const std::string& path :
           {array_file(folder, "a.npy", "", shape, numbers),
            array_file(folder, "a.npz", "arr_0", shape, numbers),
            array_file(folder, "n.npz", "routed_experts", shape, numbers), folder / "a.json"}) {
        SCOPED_TRACE(path + ", " + axes + ", seed " + std::to_string(seed));
        const Recording recording = read_recording(path, {.axes = axes});
        EXPECT_EQ(recording.axes, axes);
        ASSERT_TRUE(recording.is_trace());
        EXPECT_TRUE(std::ranges::equal(ids_of(*recording.trace), ids));
        // A range in the middle that begins and ends inside blocks.
        std::vector<std::int32_t> middle(static_cast<std::size_t>(3 * num_layers * top_k));
        recording.trace->read_ids({2, 5}, middle);
        EXPECT_TRUE(
            std::ranges::equal(middle, std::span(ids).subspan(2 * num_layers * top_k, middle.size())));
      }
    }
}

TEST_F(NamelessArray, OfATraceIsReadLongerThanABlock) {
  Numbers ids;
  for (std::int64_t t = 0; t < 5000; ++t)
    for (std::int64_t l = 0; l < 3; ++l)
      for (std::int64_t j = 0; j < 4; ++j) ids.push_back((t + 7 * l) % 60 + j);
  const auto profile = [&](const std::string& axes, const std::string& file) {
    const auto [shape, numbers] = in_order(axes, ids, {5000, 3, 4});
    return profile_in(array_file(folder, file, "x", shape, numbers), {.axes = axes});
  };
  EXPECT_EQ(profile("layers,tokens,k", "a.npz"), profile("tokens,layers,k", "b.npy"));
}

TEST_F(NamelessArray, IsReadInEveryOrderOfCountsThatIsSaid) {
  Numbers numbers(12);
  std::iota(numbers.begin(), numbers.end(), 1);
  const auto profile = [&](Shape shape, const char* axes) {
    return profile_in(array_file(folder, "a.npy", "", std::move(shape), numbers), {.axes = axes});
  };
  EXPECT_EQ(profile({3, 4}, "layers,experts"), RoutingProfile(3, 4, numbers, {}));
  EXPECT_EQ(profile({3, 2, 2}, "layers,ranks,experts"), RoutingProfile(3, 4, numbers, {}));
  EXPECT_EQ(profile({2, 3, 2}, "steps,layers,experts"), RoutingProfile(3, 2, {8, 10, 12, 14, 16, 18}, {}));
  const Recording steps = read_recording(array_file(folder, "s.npy", "", {2, 3, 2}, numbers),
                                         {.axes = "counts", .steps = ReadOptions::Steps::kept});
  ASSERT_EQ(steps.steps.size(), 2U);
  EXPECT_THAT(steps.steps[1].loads(), ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_EQ(steps.axes, "steps,layers,experts");
  EXPECT_THAT(steps.notes, ElementsAre("read as steps,layers,experts: 2 steps of 3 layers of 2 experts"));
  // The name says that the numbers are counts; `axes` says in which order the axes are.
  EXPECT_EQ(
      profile_in(array_file(folder, "c.npz", "counts", {3, 2, 2}, numbers), {.axes = "layers,ranks,experts"}),
      RoutingProfile(3, 4, numbers, {}));
}

TEST_F(NamelessArray, IsAskedAboutWithEveryReadingOfItsShape) {
  const auto [shape, numbers] = in_order("tokens,layers,k", random_ids(1));
  const std::string path = array_file(folder, "a.npy", "", shape, numbers);
  EXPECT_EQ(question_about(path),
            "axes: " + path +
                ": no option says what the dimensions [7, 3, 2] are; allowed: tokens,layers,k: 3 layers of 5 "
                "experts, 7 tokens, top-2; tokens,k,layers: 2 layers of 5 experts, 7 tokens, top-3; "
                "layers,tokens,k: 7 layers of 5 experts, 3 tokens, top-2; steps,layers,experts: 7 steps of 3 "
                "layers of 2 experts; layers,ranks,experts: 7 layers of 6 experts on 3 ranks; or an array "
                "named topk_ids, counts or physical_to_logical_map in the file");
  const std::string flat = array_file(folder, "b.npz", "data", {3, 2}, {0, 4, 1, 3, 0, 2});
  EXPECT_EQ(question_about(flat),
            "axes: " + flat +
                ": the name 'data' is unknown, and no option says what the dimensions [3, 2] are; allowed: "
                "tokens,k: 1 layer of 5 experts, 3 tokens, top-2; layers,experts: 3 layers of 2 experts; or "
                "columns layer,k...: 2 layers, 3 lines, top-1; or an array named topk_ids, counts or "
                "physical_to_logical_map in the file");
  // The question in the error does not offer interpretations that the numbers rule out.
  const std::string negative = question_about(array_file(folder, "c.npy", "", {2, 2}, {-1, 1, 2, 3}));
  EXPECT_THAT(negative, HasSubstr("tokens,k: "));
  EXPECT_THAT(negative, Not(HasSubstr("layers,experts")));
  EXPECT_THAT(question_about(array_file(folder, "d.npy", "", {2, 2}, {70000, 1, 2, 3})),
              Not(HasSubstr("tokens,k: ")));
  EXPECT_THAT(recording_refusal(array_file(folder, "e.npy", "", {4}, {1, 2, 3, 4})),
              HasSubstr("shape [4] fits neither counts"));
}

TEST_F(NamelessArray, HasTheOrderInWhichAloneItHasTheModelsSizes) {
  const ModelLayers model{
      .num_hidden_layers = 3, .moe_layers = {0, 1, 2}, .num_experts = num_experts, .top_k = top_k};
  for (const auto& [axes, order] : orders) {
    const auto [shape, numbers] = in_order(axes, random_ids(2));
    EXPECT_EQ(read_recording(array_file(folder, "a.npy", "", shape, numbers), {.model = model}).axes, axes);
  }
  const Numbers counts{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(read_recording(array_file(folder, "b.npy", "", {3, 5}, counts), {.model = model}).axes,
            "layers,experts");
  // Two orders of axes fit the model, or none does.
  const ModelLayers square{.num_hidden_layers = 2, .moe_layers = {0, 1}, .num_experts = 4, .top_k = 2};
  EXPECT_THAT(question_about(array_file(folder, "c.npy", "", {3, 2, 2}, {0, 1, 2, 3, 1, 0, 3, 2, 0, 2, 1, 3}),
                             {.model = square}),
              HasSubstr("no option says"));
  EXPECT_THAT(question_about(array_file(folder, "d.npy", "", {5, 3}, counts), {.model = model}),
              HasSubstr("no option says"));
}

TEST_F(NamelessArray, ThatContradictsWhatIsSaidIsRefused) {
  const Numbers ids = random_ids(3);
  const auto [shape, numbers] = in_order("tokens,k,layers", ids);
  const std::string path = array_file(folder, "a.npy", "", shape, numbers);
  for (const auto& [said, why] : {std::pair("tokens,layers,k", "rows have an id twice, which no router does"),
                                  std::pair("tokens,k", "axes: tokens,k, but"),
                                  std::pair("k,tokens,layers", "axes: 'k,tokens,layers'; allowed: "),
                                  std::pair("ranks,experts", "ranks,experts is an order without layers")})
    EXPECT_THAT(question_about(path, {.axes = said}), HasSubstr(why));
  EXPECT_THAT(recording_refusal(path, {.num_experts = 4, .axes = "tokens,k,layers"}),
              HasSubstr("expert id 4"));
  EXPECT_THAT(question_about(path, {.axes = "trace", .columns = "layer,k..."}), HasSubstr("one of the two"));
  // Under the name topk_ids, experts may repeat, as in synthetic routing.
  EXPECT_NO_THROW(read_recording(array_file(folder, "b.npz", "topk_ids", {2, 2}, {0, 0, 1, 1})));
}

TEST_F(NamelessArray, OfOneNumberIsNoRouting) {
  write_text(folder / "a.npy",
             npy_text("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", std::string(8, 0)));
  for (const char* axes : {"", "counts", "tokens,k"})
    EXPECT_THAT(recording_refusal(folder / "a.npy", {.axes = axes}),
                HasSubstr("is a single number, not routing"));
}

TEST(Nameless, ProbabilitiesAreRefused) {
  const std::string shares = "0.25,0.75\n0.5,0.5\n";
  for (const char* axes : {"", "counts", "layers,ranks,experts"})
    EXPECT_THAT(recording_refusal(source_of("[[[0.25, 0.75], [0.5, 0.5]], [[0.125, 0.875], [1, 0]]]"),
                                  {.axes = axes}),
                HasSubstr("sums to 1: these look like router probabilities"));
  expect_no_recording(
      {{shares, HasSubstr("if each row is a layer's shares of load, give axes layers,experts")},
       {"-0.25,1.25\n0.5,0.5\n", HasSubstr("has negative fractions, as logits do")}});
  EXPECT_THAT(read_recording(source_of(shares), {.axes = "counts"}).notes,
              testing::Contains(HasSubstr("shares of the load")));
}

TEST_F(NamelessArray, OfAModelHasAllItsExperts) {
  const std::string path = array_file(folder, "a.npy", "", {3, 2, 2},
                                      {0, 1, 2, 3, 1, 2, 3, 0, 4, 0, 1, 3});  // no token chose expert 5
  ModelLayers model{.num_hidden_layers = 3, .moe_layers = {1, 2}, .num_experts = 6, .top_k = 2};
  const Recording two = read_recording(path, {.model = model, .axes = "tokens,layers,k"});
  EXPECT_EQ(two.profile.num_experts(), 6);
  EXPECT_EQ(two.layers(), LayerNumbers({1, 2}));
  model.num_experts = 4;
  EXPECT_THAT(question_about(path, {.model = model, .axes = "tokens,layers,k"}), HasSubstr("experts"));
  // If the array has all hidden layers, the MoE layers are taken, with a note. An array with more layers than
  // the model has is refused.
  model.num_experts = 6;
  const std::string all = array_file(folder, "b.npy", "", {1, 3, 2}, {0, 1, 2, 3, 4, 1});
  const Recording of_all = read_recording(all, {.model = model, .axes = "tokens,layers,k"});
  EXPECT_THAT(of_all.profile.loads(), ElementsAre(0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0));
  EXPECT_THAT(of_all.notes, testing::Contains("2 of the 3 layers are taken: 1-2"));
  const std::string more = array_file(folder, "c.npy", "", {1, 5, 2}, {0, 1, 2, 3, 4, 1, 0, 1, 2, 3});
  EXPECT_THAT(question_about(more, {.model = model, .axes = "tokens,layers,k"}), HasSubstr("5 layers"));
}

TEST(Named, IsNotTakenWhereAnotherMayBeMeant) {
  const std::string of_vllm = R"({"expert_load": [[4, 6, 1, 2]], "p2l_map": [[0, 1, 2, 0]]})";
  const auto either = HasSubstr("and either may be the routing; keep only one");
  expect_no_recording({
      // Two arrays that may both be the routing, by their names; counts of physical experts beside a map.
      {R"({"weight": [[1, 2]], "logical_count": [[3, 4]]})", either},
      {R"({"loads": [[1, 2]], "logical_count": [[3, 4]]})", either},
      {R"({"expert_load": [[4, 6]], "physical_to_logical_map": [[0, 1]]})",
       HasSubstr("may count physical experts")},
      {"{\"expert_load\": [[4, 6]]}\n" + of_vllm + "\n", HasSubstr("line 2: p2l_map")},
      {R"({"logical_count": [[3, 4]], "num_experts": 9})",
       HasSubstr("num_experts: is 9, but the counts are of 2 experts")},
      {R"({"weight": [[3, 4]], "layers": [1, 2]})", HasSubstr("layers: has 2 numbers for 1 layers")},
      // Columns of single layers beside a column of totals.
      {"expert,layer_0,layer_1,tokens\n0,5,1,6\n1,6,2,8\n",
       HasSubstr("column 'layer_0' is of one layer; write a line for each layer")},
  });
  EXPECT_THAT(read_recording(source_of(of_vllm)).profile.loads(), ElementsAre(6, 6, 1));
  const TempFolder folder;
  const Numbers ids = {0, 1}, counts = {3, 1};
  internal::write_arrays({internal::integers_to_write("topk_ids", {1, 2}, ids),
                          internal::integers_to_write("counts", {1, 2}, counts)},
                         {}, folder / "two.npz", FileFormat::npz);
  EXPECT_THAT(recording_refusal(folder / "two.npz"), HasSubstr("counts: is there as well as 'topk_ids'"));
  const std::string named = "count,expert,layer\n0,0,5\n1,1,7\n";
  EXPECT_THAT(question_about(source_of(named), {.columns = "layer,expert,count"}),
              HasSubstr("columns: layer,expert,count, but f names its columns count,expert,layer"));
  EXPECT_NO_THROW(read_recording(source_of(named), {.columns = "count,expert,layer"}));
}

TEST(Named, CountsMayLieInAnotherOrder) {
  const std::string counts = R"({"counts": [[5, 1], [2, 7], [3, 3]]})";
  for (const char* axes : {"counts", "layers,experts"})
    EXPECT_THAT(profile_in(source_of(counts), {.axes = axes}).loads(), ElementsAre(5, 1, 2, 7, 3, 3));
  // By default the rows are the ranks of one step.
  EXPECT_THAT(profile_in(source_of(counts)).loads(), ElementsAre(10, 11));
  const Recording ranks = read_recording(source_of(R"({"logical_count": [[[1, 2], [3, 4]]], "layers": [5]})"),
                                         {.axes = "layers,ranks,experts"});
  EXPECT_THAT(ranks.profile.loads(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(ranks.layers(), LayerNumbers({5}));
}

TEST_F(NamelessArray, OfFewIdsHasNoSpaceForManyLayersAndExperts) {
  Numbers ids(20000, 1);
  ids.back() = 60000;
  const ReadOptions usual{.axes = "tokens,layers,k"};
  EXPECT_THAT(recording_refusal(array_file(folder, "a.npy", "", {1, 20000, 1}, ids), usual),
              HasSubstr("has only 20000 numbers for 20000 layers of 60001 experts"));
  EXPECT_THAT(recording_refusal(array_file(folder, "b.npy", "", {0, 131072, 1}, {}), usual),
              HasSubstr("at most 65536 layers are read"));
}

TEST(NamelessList, OfRecordsOrAListALineIsToldWhatToWrite) {
  const ReadOptions counts{.axes = "layers,experts"};
  expect_no_recording({
      {"[{\"layer\": 0}, {\"layer\": 1}]", HasSubstr("is a list of records; write one record a line"),
       counts},
      {"[1, 2]\n[3, 4]\n", HasSubstr("a second list begins here; write one list of all lists"), counts},
  });
}

TEST(NamelessTable, HasTheColumnsThatAreSaid) {
  // The n-th line of a layer belongs to the n-th token.
  const std::string lines = "3,0,4\n5,1,2\n3,2,0\n5,3,1\n";
  for (const std::string& text : {lines, std::string("[[3,0,4],[5,1,2],[3,2,0],[5,3,1]]")}) {
    const Recording recording = read_recording(source_of(text), {.columns = "layer,k..."});
    EXPECT_EQ(recording.layers(), LayerNumbers({3, 5}));
    ASSERT_TRUE(recording.is_trace());
    EXPECT_THAT(ids_of(*recording.trace), ElementsAre(0, 4, 1, 2, 2, 0, 3, 1));
  }
  EXPECT_EQ(read_recording(source_of("7,3,0,4\n8,5,1,2\n"), {.columns = "-,layer,k..."}).layers(),
            LayerNumbers({3, 5}));
  const Recording tokens =
      read_recording(source_of("9,3,0,4\n9,5,1,2\n4,5,3,1\n"), {.columns = "token,layer,k..."});
  EXPECT_THAT(ids_of(*tokens.trace), ElementsAre(0, 4, 1, 2, -1, -1, 3, 1));
  const Recording steps = read_recording(source_of("0,3,1,2\n1,3,0,1\n1,3,4,0\n"),
                                         {.columns = "step,layer,k...", .steps = ReadOptions::Steps::kept});
  ASSERT_EQ(steps.steps.size(), 2U);
  EXPECT_THAT(steps.steps[1].loads(), ElementsAre(2, 1, 0, 0, 1));
  EXPECT_EQ(profile_in(source_of("4,7,0\n2,1,5\n"), {.columns = "layer,experts..."}).layers(),
            LayerNumbers({2, 4}));
  EXPECT_THAT(recording_refusal(source_of(lines + "3,1,4\n"), {.columns = "layer,k..."}),
              HasSubstr("has 3 lines of layer 3 but 2 of layer 5"));
  EXPECT_THAT(recording_refusal(source_of("9,3,0,4\n9,3,1,2\n"), {.columns = "token,layer,k..."}),
              HasSubstr("line 2: repeats layer 3, the token of line 1"));
  expect_no_recording<InvalidArgument>({
      {"1,2\n", HasSubstr("columns: layer,x: 'x' is not a known column"), {.columns = "layer,x"}},
      {"1,2\n", HasSubstr("names 1 columns, but the file has 2"), {.columns = "layer"}},
      {"1,2\n", HasSubstr("k... must be the last"), {.columns = "k...,layer"}},
  });
}

TEST(NamelessTable, WithNamesOfChoicesIsATrace) {
  const Recording recording = read_recording(source_of("token,layer,k_0,k_1\n0,3,1,2\n1,3,0,2\n"));
  EXPECT_EQ(recording.kind, "trace");
  EXPECT_EQ(recording.layers(), LayerNumbers({3}));
  EXPECT_THAT(recording.profile.loads(), ElementsAre(1, 1, 2));
}

TEST_F(NamelessArray, OfOneStepIsSaidByExpertOrByRank) {
  const auto counts = [&](Shape shape, const char* axes, std::optional<int> ranks) {
    return read_step_loads(array_file(folder, "a.npy", "", std::move(shape), {1, 2, 3, 4}),
                           {.num_ranks = ranks, .reading = {.axes = axes}})
        .of.front()
        .counts;
  };
  EXPECT_TRUE(std::ranges::equal(counts({4}, "experts", 2).loads(), Numbers{1, 2, 3, 4}));
  const Counts by_rank = counts({2, 2}, "ranks,experts", {});
  EXPECT_EQ(by_rank.num_ranks(), 2);
  EXPECT_EQ(by_rank.at(RankId(1), ExpertId(0)), 3);
  const auto question = [&](const Shape& shape) {
    return message_of<InvalidArgument>([&] { counts(shape, "", 2); });
  };
  EXPECT_THAT(question({4}), HasSubstr("experts: 4 experts of one step"));
  EXPECT_THAT(question({2, 2}), HasSubstr("ranks,experts: 2 experts on 2 source ranks"));
}

}  // namespace
}  // namespace evenkeel
