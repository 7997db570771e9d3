// Numbers that nobody named: each order that may be said, the question where none is, and what contradicts
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/loads_file.h"
#include "evenkeel/io/trace_file.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Shape = std::vector<std::int64_t>;
using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t num_tokens = 7, num_layers = 3, top_k = 2, num_experts = 5;

// [tokens, layers, k], without a repeated expert in a row.
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

// The same ids in another order of dimensions.
std::pair<Shape, Numbers> in_order(const std::string& axes, const Numbers& ids) {
  const std::map<std::string, std::int64_t> lengths = {
      {"tokens", num_tokens}, {"layers", num_layers}, {"k", top_k}};
  std::vector<std::string> names;
  Shape shape;
  for (std::size_t at = 0; at <= axes.size(); at += names.back().size() + 1) {
    names.push_back(axes.substr(at, axes.find(',', at) - at));
    shape.push_back(lengths.at(names.back()));
  }
  Numbers turned;
  for (std::int64_t a = 0; a < shape[0]; ++a)
    for (std::int64_t b = 0; b < shape[1]; ++b)
      for (std::int64_t c = 0; c < shape[2]; ++c) {
        std::map<std::string, std::int64_t> at = {{names[0], a}, {names[1], b}, {names[2], c}};
        turned.push_back(
            ids[static_cast<std::size_t>((at["tokens"] * num_layers + at["layers"]) * top_k + at["k"])]);
      }
  return {shape, turned};
}

std::string file_with(const TempFolder& folder, const std::string& file, const std::string& name, Shape shape,
                      const Numbers& numbers) {
  const FileFormat format = file.ends_with("npy") ? FileFormat::npy : FileFormat::npz;
  internal::write_arrays({internal::integers_to_write(name, std::move(shape), numbers)}, {}, folder / file,
                         format);
  return folder / file;
}

std::string list_of(const Shape& shape, const Numbers& numbers, std::size_t dimension, std::size_t& at) {
  if (dimension == shape.size()) return std::to_string(numbers[at++]);
  std::string text = "[";
  for (std::int64_t i = 0; i < shape[dimension]; ++i)
    text += (i > 0 ? "," : "") + list_of(shape, numbers, dimension + 1, at);
  return text + "]";
}

std::string question_about(const std::string& path, const ReadOptions& options = {}) {
  return message_of<InvalidArgument>([&] { read_recording(path, options); });
}

TEST(NamelessArray, IsReadInEveryOrderOfATraceThatIsSaid) {
  TempFolder folder;
  for (const char* axes : {"tokens,layers,k", "tokens,k,layers", "layers,tokens,k"})
    for (unsigned seed = 0; seed < 5; ++seed) {
      const Numbers ids = random_ids(seed);
      const auto [shape, numbers] = in_order(axes, ids);
      std::size_t at = 0;
      write_text(folder / "a.json", list_of(shape, numbers, 0, at));
      for (const std::string& path :
           {file_with(folder, "a.npy", "", shape, numbers),
            file_with(folder, "a.npz", "arr_0", shape, numbers),
            file_with(folder, "n.npz", "routed_experts", shape, numbers), folder / "a.json"}) {
        SCOPED_TRACE(path + ", " + axes + ", seed " + std::to_string(seed));
        const Recording recording = read_recording(path, {.axes = axes});
        EXPECT_EQ(recording.axes, axes);
        ASSERT_TRUE(recording.is_trace());
        std::vector<std::int32_t> read(ids.size());
        recording.trace->read_ids({0, num_tokens}, read);
        EXPECT_TRUE(std::ranges::equal(read, ids));
        // A range in the middle, which begins and ends inside blocks.
        std::vector<std::int32_t> middle(static_cast<std::size_t>(3 * num_layers * top_k));
        recording.trace->read_ids({2, 5}, middle);
        EXPECT_TRUE(
            std::ranges::equal(middle, std::span(ids).subspan(2 * num_layers * top_k, middle.size())));
      }
    }
}

TEST(NamelessArray, OfATraceIsReadLongerThanABlock) {
  TempFolder folder;
  constexpr std::int64_t tokens = 5000, layers = 3, k = 4;
  Numbers usual(static_cast<std::size_t>(tokens * layers * k)), turned(usual.size());
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t l = 0; l < layers; ++l)
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int64_t id = (t + 7 * l) % 60 + j;
        usual[static_cast<std::size_t>((t * layers + l) * k + j)] = id;
        turned[static_cast<std::size_t>((l * tokens + t) * k + j)] = id;
      }
  const Recording recording = read_recording(file_with(folder, "a.npz", "x", {layers, tokens, k}, turned),
                                             {.axes = "layers,tokens,k"});
  const Recording expected =
      read_recording(file_with(folder, "b.npy", "", {tokens, layers, k}, usual), {.axes = "tokens,layers,k"});
  EXPECT_EQ(recording.profile, expected.profile);
}

TEST(NamelessArray, IsReadInEveryOrderOfCountsThatIsSaid) {
  TempFolder folder;
  Numbers numbers(12);
  std::iota(numbers.begin(), numbers.end(), 1);
  const auto profile = [&](Shape shape, const char* axes) {
    return profile_in(file_with(folder, "a.npy", "", std::move(shape), numbers), {.axes = axes});
  };
  EXPECT_EQ(profile({3, 4}, "layers,experts"), RoutingProfile(3, 4, numbers, {}));
  EXPECT_EQ(profile({3, 2, 2}, "layers,ranks,experts"), RoutingProfile(3, 4, numbers, {}));
  EXPECT_EQ(profile({2, 3, 2}, "steps,layers,experts"), RoutingProfile(3, 2, {8, 10, 12, 14, 16, 18}, {}));
  const Recording steps = read_recording(file_with(folder, "s.npy", "", {2, 3, 2}, numbers),
                                         {.axes = "counts", .steps = ReadOptions::Steps::kept});
  ASSERT_EQ(steps.steps.size(), 2U);
  EXPECT_THAT(steps.steps[1].loads(), ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_EQ(steps.axes, "steps,layers,experts");
  EXPECT_THAT(steps.notes, ElementsAre("read as steps,layers,experts: 2 steps of 3 layers of 2 experts"));
  // A name says that numbers are counts, and axes in which order.
  EXPECT_EQ(
      profile_in(file_with(folder, "c.npz", "counts", {3, 2, 2}, numbers), {.axes = "layers,ranks,experts"}),
      RoutingProfile(3, 4, numbers, {}));
}

TEST(NamelessArray, IsAskedAboutWithEveryReadingOfItsShape) {
  TempFolder folder;
  const auto [shape, numbers] = in_order("tokens,layers,k", random_ids(1));
  const std::string path = file_with(folder, "a.npy", "", shape, numbers);
  EXPECT_EQ(
      question_about(path),
      "axes: " + path +
          ": nobody says what its [7, 3, 2] numbers are; allowed: tokens,layers,k: 3 layers of 5 experts, 7 "
          "tokens, top-2; tokens,k,layers: 2 layers of 5 experts, 7 tokens, top-3; layers,tokens,k: 7 layers "
          "of 5 experts, 3 tokens, top-2; steps,layers,experts: 7 steps of 3 layers of 2 experts; "
          "layers,ranks,experts: 7 layers of 6 experts on 3 ranks; or a name in the file, such as topk_ids, "
          "counts or physical_to_logical_map");
  const std::string flat = file_with(folder, "b.npz", "data", {3, 2}, {0, 4, 1, 3, 0, 2});
  EXPECT_EQ(
      question_about(flat),
      "axes: " + flat +
          ": 'data' is no name that says it; nobody says what its [3, 2] numbers are; allowed: tokens,k: 1 "
          "layer of 5 experts, 3 tokens, top-2; layers,experts: 3 layers of 2 experts; or columns "
          "layer,k...: "
          "2 layers, 3 lines, top-1; or a name in the file, such as topk_ids, counts or "
          "physical_to_logical_map");
  // What numbers cannot be is not offered.
  const std::string negative = question_about(file_with(folder, "c.npy", "", {2, 2}, {-1, 1, 2, 3}));
  EXPECT_THAT(negative, HasSubstr("tokens,k: "));
  EXPECT_THAT(negative, Not(HasSubstr("layers,experts")));
  EXPECT_THAT(question_about(file_with(folder, "d.npy", "", {2, 2}, {70000, 1, 2, 3})),
              Not(HasSubstr("tokens,k: ")));
  EXPECT_THAT(message_of<ParseError>([&] {
                read_recording(file_with(folder, "e.npy", "", {4}, {1, 2, 3, 4}));
              }),
              HasSubstr("shape [4] is neither counts"));
}

TEST(NamelessArray, HasTheOrderInWhichAloneItHasTheModelsSizes) {
  TempFolder folder;
  const ModelLayers model{
      .num_hidden_layers = 3, .moe_layers = {0, 1, 2}, .num_experts = num_experts, .top_k = top_k};
  for (const char* axes : {"tokens,layers,k", "tokens,k,layers", "layers,tokens,k"}) {
    const auto [shape, numbers] = in_order(axes, random_ids(2));
    EXPECT_EQ(read_recording(file_with(folder, "a.npy", "", shape, numbers), {.model = model}).axes, axes);
  }
  const Numbers counts{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(read_recording(file_with(folder, "b.npy", "", {3, 5}, counts), {.model = model}).axes,
            "layers,experts");
  // In two orders, or in none.
  const ModelLayers square{.num_hidden_layers = 2, .moe_layers = {0, 1}, .num_experts = 4, .top_k = 2};
  EXPECT_THAT(question_about(file_with(folder, "c.npy", "", {3, 2, 2}, {0, 1, 2, 3, 1, 0, 3, 2, 0, 2, 1, 3}),
                             {.model = square}),
              HasSubstr("nobody says"));
  EXPECT_THAT(question_about(file_with(folder, "d.npy", "", {5, 3}, counts), {.model = model}),
              HasSubstr("nobody says"));
}

TEST(NamelessArray, ThatContradictsWhatIsSaidIsRefused) {
  TempFolder folder;
  const Numbers ids = random_ids(3);
  const auto [shape, numbers] = in_order("tokens,k,layers", ids);
  const std::string path = file_with(folder, "a.npy", "", shape, numbers);
  EXPECT_THAT(question_about(path, {.axes = "tokens,layers,k"}),
              HasSubstr("name an expert twice, which no router does"));
  EXPECT_THAT(question_about(path, {.axes = "tokens,k"}), HasSubstr("axes: tokens,k, but"));
  EXPECT_THAT(question_about(path, {.axes = "k,tokens,layers"}),
              HasSubstr("axes: 'k,tokens,layers'; allowed: "));
  EXPECT_THAT(question_about(path, {.axes = "ranks,experts"}), HasSubstr("which are of one step"));
  EXPECT_THAT(
      message_of<ParseError>([&] { read_recording(path, {.num_experts = 4, .axes = "tokens,k,layers"}); }),
      HasSubstr("expert id 4"));
  EXPECT_THAT(question_about(path, {.axes = "trace", .columns = "layer,k..."}), HasSubstr("one of the two"));
  // By the name topk_ids experts may repeat, as in made-up routing.
  EXPECT_NO_THROW(read_recording(file_with(folder, "b.npz", "topk_ids", {2, 2}, {0, 0, 1, 1})));
}

TEST(NamelessArray, OfOneNumberIsNoRouting) {
  TempFolder folder;
  write_text(folder / "a.npy",
             npy_text("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", std::string(8, 0)));
  for (const char* axes : {"", "counts", "tokens,k"})
    EXPECT_THAT(message_of<ParseError>([&] { read_recording(folder / "a.npy", {.axes = axes}); }),
                HasSubstr("is one number, and no routing"));
}

TEST(NamelessArray, OfProbabilitiesIsRefused) {
  TempFolder folder;
  write_text(folder / "p.json", "[[[0.25, 0.75], [0.5, 0.5]], [[0.125, 0.875], [1, 0]]]");
  for (const char* axes : {"", "counts", "layers,ranks,experts"})
    EXPECT_THAT(message_of<ParseError>([&] { read_recording(folder / "p.json", {.axes = axes}); }),
                HasSubstr("sums to 1: these are probabilities"));
  write_text(folder / "shares.csv", "0.25,0.75\n0.5,0.5\n");
  EXPECT_THAT(message_of<ParseError>([&] { read_recording(folder / "shares.csv"); }),
              HasSubstr("shares of each layer's load are axes layers,experts"));
  EXPECT_THAT(read_recording(folder / "shares.csv", {.axes = "counts"}).notes,
              testing::Contains(HasSubstr("shares of the load")));
  write_text(folder / "logits.csv", "-0.25,1.25\n0.5,0.5\n");
  EXPECT_THAT(message_of<ParseError>([&] { read_recording(folder / "logits.csv"); }),
              HasSubstr("has fractions below 0, as logits have"));
}

TEST(NamelessArray, OfAModelHasAllItsExperts) {
  TempFolder folder;
  const std::string path =
      file_with(folder, "a.npy", "", {3, 2, 2}, {0, 1, 2, 3, 1, 2, 3, 0, 4, 0, 1, 3});  // none chose expert 5
  ModelLayers model;
  model.moe_layers = {1, 2};
  model.num_hidden_layers = 3;
  model.top_k = 2;
  model.num_experts = 6;
  const Recording two = read_recording(path, {.model = model, .axes = "tokens,layers,k"});
  EXPECT_EQ(two.profile.num_experts(), 6);
  EXPECT_EQ(two.layers(), LayerNumbers({1, 2}));
  model.num_experts = 4;
  EXPECT_THAT(question_about(path, {.model = model, .axes = "tokens,layers,k"}), HasSubstr("experts"));
  // Of all hidden layers those with experts are taken, and it is said; of more than there are, none.
  model.num_experts = 6;
  const std::string all = file_with(folder, "b.npy", "", {1, 3, 2}, {0, 1, 2, 3, 4, 1});
  const Recording of_all = read_recording(all, {.model = model, .axes = "tokens,layers,k"});
  EXPECT_THAT(of_all.profile.loads(), ElementsAre(0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0));
  EXPECT_THAT(of_all.notes, testing::Contains("2 of the 3 layers are taken: 1-2"));
  const std::string more = file_with(folder, "c.npy", "", {1, 5, 2}, {0, 1, 2, 3, 4, 1, 0, 1, 2, 3});
  EXPECT_THAT(question_about(more, {.model = model, .axes = "tokens,layers,k"}), HasSubstr("5 layers"));
}

TEST(Named, IsNotTakenWhereAnotherMayBeMeant) {
  TempFolder folder;
  const auto refusal = [](const std::string& text, const ReadOptions& options = {}) {
    return message_of<Error>([&] { read_recording(source_of(text), options); });
  };
  // Two of them, and a map of physical experts.
  for (const char* text : {R"({"weight": [[1, 2]], "logical_count": [[3, 4]]})",
                           R"({"loads": [[1, 2]], "logical_count": [[3, 4]]})"})
    EXPECT_THAT(refusal(text), HasSubstr("and either may be the routing; keep one"));
  EXPECT_THAT(refusal(R"({"expert_load": [[4, 6]], "physical_to_logical_map": [[0, 1]]})"),
              HasSubstr("nobody says whether those are of physical experts"));
  const std::string of_vllm = R"({"expert_load": [[4, 6, 1, 2]], "p2l_map": [[0, 1, 2, 0]]})";
  EXPECT_THAT(read_recording(source_of(of_vllm)).profile.loads(), ElementsAre(6, 6, 1));
  EXPECT_THAT(refusal("{\"expert_load\": [[4, 6]]}\n" + of_vllm + "\n"), HasSubstr("line 2: p2l_map"));
  const Numbers ids = {0, 1}, counts = {3, 1};
  internal::write_arrays({internal::integers_to_write("topk_ids", {1, 2}, ids),
                          internal::integers_to_write("counts", {1, 2}, counts)},
                         {}, folder / "two.npz", FileFormat::npz);
  EXPECT_THAT(message_of<ParseError>([&] { read_recording(folder / "two.npz"); }),
              HasSubstr("counts: stands beside 'topk_ids'"));
  EXPECT_THAT(refusal(R"({"logical_count": [[3, 4]], "num_experts": 9})"),
              HasSubstr("num_experts: is 9, but the counts are of 2"));
  EXPECT_THAT(refusal(R"({"weight": [[3, 4]], "layers": [1, 2]})"),
              HasSubstr("layers: has 2 numbers for 1 layers"));
  // Layers beside a total, and names that options contradict.
  EXPECT_THAT(refusal("expert,layer_0,layer_1,tokens\n0,5,1,6\n1,6,2,8\n"),
              HasSubstr("column 'layer_0' is of one layer; write a line for each layer"));
  const std::string named = "count,expert,layer\n0,0,5\n1,1,7\n";
  EXPECT_THAT(refusal(named, {.columns = "layer,expert,count"}),
              HasSubstr("columns: layer,expert,count, but f calls them count,expert,layer"));
  EXPECT_NO_THROW(read_recording(source_of(named), {.columns = "count,expert,layer"}));
}

TEST(Named, CountsMayLieInAnotherOrder) {
  const std::string counts = R"({"counts": [[5, 1], [2, 7], [3, 3]]})";
  for (const char* axes : {"counts", "layers,experts"})
    EXPECT_THAT(read_recording(source_of(counts), {.axes = axes}).profile.loads(),
                ElementsAre(5, 1, 2, 7, 3, 3));
  EXPECT_THAT(read_recording(source_of(counts)).profile.loads(),
              ElementsAre(10, 11));  // by rank, of one step
  const Recording ranks = read_recording(source_of(R"({"logical_count": [[[1, 2], [3, 4]]], "layers": [5]})"),
                                         {.axes = "layers,ranks,experts"});
  EXPECT_THAT(ranks.profile.loads(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(ranks.layers(), LayerNumbers({5}));
}

TEST(NamelessArray, OfFewIdsHasNoSpaceForManyLayersAndExperts) {
  TempFolder folder;
  std::vector<std::int64_t> ids(20000, 1);
  ids.back() = 60000;
  EXPECT_THAT(
      message_of<ParseError>([&] {
        read_recording(file_with(folder, "a.npy", "", {1, 20000, 1}, ids), {.axes = "tokens,layers,k"});
      }),
      HasSubstr("has few numbers (20000) for 20000 layers of 60001 experts"));
  EXPECT_THAT(
      message_of<ParseError>([&] {
        read_recording(file_with(folder, "b.npy", "", {0, 131072, 1}, {}), {.axes = "tokens,layers,k"});
      }),
      HasSubstr("more than 65536 layers"));
}

TEST(NamelessList, OfRecordsOrAListALineIsToldWhatToWrite) {
  const auto refusal = [](const char* text) {
    return message_of<ParseError>([&] { read_recording(source_of(text), {.axes = "layers,experts"}); });
  };
  EXPECT_THAT(refusal("[{\"layer\": 0}, {\"layer\": 1}]"),
              HasSubstr("is a list of records; write one a line"));
  EXPECT_THAT(refusal("[1, 2]\n[3, 4]\n"),
              HasSubstr("a second list begins here; write one list of them all"));
}

TEST(NamelessTable, HasTheColumnsThatAreSaid) {
  // The n-th line of a layer is of the n-th token.
  const std::string lines = "3,0,4\n5,1,2\n3,2,0\n5,3,1\n";
  for (const std::string& text : {lines, std::string("[[3,0,4],[5,1,2],[3,2,0],[5,3,1]]")}) {
    const Recording recording = read_recording(source_of(text), {.columns = "layer,k..."});
    EXPECT_EQ(recording.layers(), LayerNumbers({3, 5}));
    ASSERT_TRUE(recording.is_trace());
    std::vector<std::int32_t> ids(8);
    recording.trace->read_ids({0, 2}, ids);
    EXPECT_THAT(ids, ElementsAre(0, 4, 1, 2, 2, 0, 3, 1));
  }
  EXPECT_THAT(message_of<ParseError>(
                  [&] { read_recording(source_of(lines + "3,1,4\n"), {.columns = "layer,k..."}); }),
              HasSubstr("has 3 lines of layer 3 and 2 of layer 5, and no column of tokens"));
  EXPECT_EQ(read_recording(source_of("7,3,0,4\n8,5,1,2\n"), {.columns = "-,layer,k..."}).layers(),
            LayerNumbers({3, 5}));
  const Recording tokens =
      read_recording(source_of("9,3,0,4\n9,5,1,2\n4,5,3,1\n"), {.columns = "token,layer,k..."});
  std::vector<std::int32_t> ids(8);
  tokens.trace->read_ids({0, 2}, ids);
  EXPECT_THAT(ids, ElementsAre(0, 4, 1, 2, -1, -1, 3, 1));
  EXPECT_THAT(message_of<ParseError>(
                  [] { read_recording(source_of("9,3,0,4\n9,3,1,2\n"), {.columns = "token,layer,k..."}); }),
              HasSubstr("line 2: layer 3, the same token is in line 1 already"));
  const Recording steps = read_recording(source_of("0,3,1,2\n1,3,0,1\n1,3,4,0\n"),
                                         {.columns = "step,layer,k...", .steps = ReadOptions::Steps::kept});
  ASSERT_EQ(steps.steps.size(), 2U);
  EXPECT_THAT(steps.steps[1].loads(), ElementsAre(2, 1, 0, 0, 1));
  EXPECT_EQ(profile_in(source_of("4,7,0\n2,1,5\n"), {.columns = "layer,experts..."}).layers(),
            LayerNumbers({2, 4}));
  EXPECT_THAT(message_of<InvalidArgument>([] { read_recording(source_of("1,2\n"), {.columns = "layer,x"}); }),
              HasSubstr("columns: layer,x: 'x' is no column"));
  EXPECT_THAT(message_of<InvalidArgument>([] { read_recording(source_of("1,2\n"), {.columns = "layer"}); }),
              HasSubstr("names 1 of 2 columns"));
  EXPECT_THAT(
      message_of<InvalidArgument>([] { read_recording(source_of("1,2\n"), {.columns = "k...,layer"}); }),
      HasSubstr("k... is not the last"));
}

TEST(NamelessTable, WithNamesOfChoicesIsATrace) {
  const Recording recording = read_recording(source_of("token,layer,k_0,k_1\n0,3,1,2\n1,3,0,2\n"));
  EXPECT_EQ(recording.kind, "trace");
  EXPECT_EQ(recording.layers(), LayerNumbers({3}));
  EXPECT_THAT(recording.profile.loads(), ElementsAre(1, 1, 2));
}

TEST(NamelessLoads, OfOneStepAreSaidByExpertOrByRank) {
  TempFolder folder;
  const auto counts = [&](Shape shape, const char* axes, std::optional<int> ranks) {
    return read_step_loads(file_with(folder, "a.npy", "", std::move(shape), {1, 2, 3, 4}),
                           {.num_ranks = ranks, .reading = {.axes = axes}})
        .counts;
  };
  EXPECT_TRUE(std::ranges::equal(counts({4}, "experts", 2).loads(), Numbers{1, 2, 3, 4}));
  const Counts by_rank = counts({2, 2}, "ranks,experts", {});
  EXPECT_EQ(by_rank.num_ranks(), 2);
  EXPECT_EQ(by_rank.at(RankId(1), ExpertId(0)), 3);
  EXPECT_THAT(message_of<InvalidArgument>([&] { counts({4}, "", 2); }),
              HasSubstr("experts: 4 experts of one step"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                counts({2, 2}, "", 2);
              }),
              HasSubstr("ranks,experts: 2 experts on 2 source ranks"));
}

}  // namespace
}  // namespace evenkeel
