// Counts in text tables: what the column names decide, and which tables are refused.
#include <algorithm>
#include <random>

#include "evenkeel/io/read_recording.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const ReadOptions as_layers{.axes = "layers,experts"};

Recording table_of(std::string_view text, const ReadOptions& options = {}) {
  Recording file = read_recording(source_of(text), options);
  EXPECT_EQ(file.kind, "counts");
  EXPECT_EQ(file.format, "csv");
  return file;
}

void expect_counts(std::string_view text, const std::vector<int>& layers, const RoutingProfile& profile,
                   const ReadOptions& options = {}) {
  const Recording file = table_of(text, options);
  EXPECT_EQ(file.layers(), LayerNumbers(layers)) << text;
  EXPECT_EQ(without_numbers(file.profile), profile) << text;
}

const RoutingProfile two_by_three(2, 3, {7, 0, 2, 0, 5, 0}, {});

TEST(LongTable, HasALineForEachExpertThatWasChosen) {
  for (const char* text :
       {"layer_id,expert_id,count\n3,0,7\n3,2,2\n4,1,5\n",
        // Different column and line orders, names, separators, line ends, byte-order marks, quotes and an
        // index.
        "num_tokens;Expert;Layer\r\n5;1;4\r\n2;2;3\r\n7;0;3\r\n",
        "layer\texpert\thits\n3\t0\t7\n3\t2\t2\n4\t1\t5\n", "layer expert tokens\n3 0 7\n3 2 2.0\n4 1 +5\n",
        "\xef\xbb\xbf\"layer\",\"expert\",\"count\"\r\"3\",0,7\r3,2,2\r4,1,5\r",
        ",layer_id,expert_id,count\n0,3,0,7\n5,3,2,2\n2,4,1,5\n",
        "# layer,expert,count\n3,0,7\n3,2,2\n4,1,5\n",
        // Extra columns besides the count; layers without assignments are dense.
        "layer_id,expert_id,count_all_topk,count_top1,ratio\n3,0,7,3,0.5\n3,2,2,1,0.2\n4,1,5,5,0.3\n",
        "layer,expert,device_name,load\n3,0,x,7\n3,2,y,2\n4,1,x,5\n",
        "layer,expert,count\n0,0,0\n0,1,0\n3,0,7\n3,2,2\n4,1,5\n",
        // Several steps or ranks are added up.
        "layer,expert,count,step\n3,0,3,0\n3,0,4,1\n3,2,2,0\n4,1,5,1\n",
        "layer,expert,count,rank\n3,0,3,0\n3,0,4,1\n3,2,2,0\n4,1,5,1\n",
        "layer,expert,count,forward_pass\n3,0,3,0\n3,0,4,1\n3,2,2,0\n4,1,5,1\n",
        "layer,expert,count,Iteration\n3,0,3,0\n3,0,4,1\n3,2,2,0\n4,1,5,1\n"})
    expect_counts(text, {3, 4}, two_by_three);
  expect_counts("expert,count\n0,7\n2,2\n", {}, RoutingProfile(1, 3, {7, 0, 2}, {}));
}

TEST(LongTable, GivesBackAnyProfileInAnyOrderOfItsLines) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const int layers = 1 + static_cast<int>(random() % 5);
    const int experts = 2 + static_cast<int>(random() % 9);
    std::vector<std::int64_t> loads;
    std::vector<int> numbers;
    std::vector<std::string> lines;
    for (int l = 0, number = 0; l < layers; ++l) {
      number += 1 + static_cast<int>(random() % 3);
      numbers.push_back(number);
      for (int e = 0; e < experts; ++e) {
        // The first and the last expert always have a line, so that num_experts need not be given.
        const std::int64_t load = e == 0 || e == experts - 1 ? 1 + random() % 9 : random() % 3;
        loads.push_back(load);
        if (load > 0)
          lines.push_back(std::to_string(load) + "," + std::to_string(e) + "," + std::to_string(number) +
                          "\n");
      }
    }
    std::shuffle(lines.begin(), lines.end(), random);
    std::string text = "count,expert,layer\n";
    for (const std::string& line : lines) text += line;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expect_counts(text, numbers, RoutingProfile(layers, experts, loads, {}));
  }
}

TEST(LongTable, IsAskedAboutWhereIdsMayBeginWithOne) {
  const std::string text = "layer,expert,count\n3,1,7\n3,2,2\n";
  expect_no_recording<InvalidArgument>({
      {text, HasSubstr("num_experts: is not given, and f has no line for expert 0")},
      {text, HasSubstr("num_experts: 2, but f has expert 2; allowed: 3 or more"), {.num_experts = 2}},
  });
  expect_counts(text, {3}, RoutingProfile(1, 4, {0, 7, 2, 0}, {}), {.num_experts = 4});
}

TEST(LongTable, WithoutNamesIsAskedAbout) {
  const std::string lines = "3,0,7\n3,1,5\n3,2,2\n4,0,1\n4,1,5\n4,2,9\n";
  expect_no_recording<InvalidArgument>({{lines, HasSubstr("layer,expert,count: 2 layers of 3 experts")}});
  EXPECT_EQ(table_of("e0,e1,e2\n" + lines).profile.num_layers(), 6);
  const ReadOptions columns{.columns = "layer,expert,count"};
  expect_counts(lines, {3, 4}, RoutingProfile(2, 3, {7, 5, 2, 1, 5, 9}, {}), columns);
  EXPECT_THAT(table_of(lines, columns).notes,
              ElementsAre("read as columns layer,expert,count: 2 layers of 3 experts"));
  EXPECT_EQ(table_of(lines, columns).axes, "layer,expert,count");
}

TEST(WideTable, HasALineForEachLayer) {
  const RoutingProfile three(3, 2, {70, 80, 5, 6, 1, 2}, {});
  for (const char* text :
       {"layer,e0,e1\n1,5,6\n0,70,80\n7,1,2\n", "expert_0,expert_1,layer_idx\n5,6,1\n70,80,0\n1,2,7\n",
        "step,layer,e0,e1\n0,1,2,3\n1,1,3,3\n0,0,70,80\n1,7,1,2\n"})
    expect_counts(text, {0, 1, 7}, three);
  const RoutingProfile one(1, 4, {5, 6, 7, 8}, {});
  for (const char* text :
       {"layer,expert_1,expert_0,expert_3,expert_2\n3,6,5,8,7\n", "layer,0,1,2,3\n3,5,6,7,8\n"})
    expect_counts(text, {3}, one);
  // A nameless index column, as pandas writes it. It only numbers the lines, and does not say which layer a
  // line belongs to.
  const std::string with_index = ",0,1,2,3\n0,5,6,7,8\n";
  expect_counts(with_index, {}, one, as_layers);
  expect_no_recording<InvalidArgument>(
      {{with_index, HasSubstr("no option says what the dimensions [1, 4] are")}});
  expect_counts(",e0,e1,e2,e3\n0,5,6,7,8\n", {}, one);
}

TEST(Table, IsRefusedWhereItsNamesDoNotSayWhatItIs) {
  expect_no_recording({
      {"layer,expert,count_top1,count_top2\n3,0,1,2\n",
       "f: line 1: any of the columns 'count_top1', 'count_top2' may be the count; keep only one of them, or "
       "name one 'count'"},
      {"layer,expert,token\n3,0,1\n", HasSubstr("so all columns of numbers must be that token's experts")},
      {"layer,expert\n3,0\n", HasSubstr("but no column of counts; name the counts 'count'")},
      {"layer,layer_id,expert,count\n3,3,0,1\n", HasSubstr("columns 'layer', 'layer_id' mean the same")},
      {"layer,physical_expert_id,count\n3,0,1\n", HasSubstr("is of physical experts")},
      {"layer,e0,e2\n3,5,6\n",
       "f: line 1: column 'e2' is for expert 2, but the 2 columns must be for experts 0..1, one each"},
      {"layer,e0,e00\n3,5,6\n",
       "f: line 1: column 'e00' is for expert 0, but the 2 columns must be for experts 0..1, one each"},
      {"layer,e0,e0\n3,5,6\n", "f: line 1: two columns are called 'e0'"},
      {"layer,e0,e1,note\n3,5,6,7\n",
       HasSubstr("f: line 1: column 'note' is not named like the columns of experts")},
      {"layer,max,mean\n3,5,6\n", HasSubstr("column 'max' is not named like the columns of experts")},
      {"layer,count\n3,5\n", HasSubstr("has 1 columns of counts")},
      {"expert,layer_4,layer_3\n1,5,0\n0,0,7\n",
       HasSubstr("f: line 1: column 'layer_4' is of one layer; write a line")},
      {"layer,expert,k_0\n3,0,7\n",
       HasSubstr("column 'expert' and columns 'k_0' both hold experts; keep only one or the other")},
      {",0,1,2,3\n4,5,6,7,8\n", HasSubstr("call it 'layer' if it is the layer")},
      {",e0,e1\n0,5,6\n2,5,6\n",
       "f: line 3, column 1: the column has no name and does not count the lines; call it 'layer' if it is "
       "the layer"},
      {"0,1,2,3\n5,6,7,8\n", HasSubstr("line 1: has 0, 1, 2, ..., which may be column names")},
      {"0,1,2,3\n5,6,7,8\n", HasSubstr("line 1: has 0, 1, 2, ..., which may be column names"), as_layers},
      {"0,1,2,3\n5,6,7,8\n",
       HasSubstr("line 1: has 0, 1, 2, ..., which may be column names"),
       {.columns = "layer,k..."}},
  });
}

TEST(Table, IsRefusedWhereALineIsThereTwice) {
  const std::string nothing = " and no column such as step, rank or forward_pass tells the two apart";
  expect_no_recording({
      {"layer,expert,count\n3,0,3\n3,0,4\n", "f: line 3: repeats layer 3, expert 0 of line 2," + nothing},
      {"step,layer,expert,count\n9,3,0,3\n8,3,0,1\n9,3,0,4\n",
       "f: line 4: repeats layer 3, expert 0 of line 2, and both lines are of the same step or rank"},
      {"layer,e0,e1\n1,5,6\n0,70,80\n1,1,1\n",
       "f: line 4: repeats layer 1 of line 2," + nothing +
           "; if the numbers are expert ids, name their columns 'k_0', 'k_1', ..."},
  });
}

TEST(TableCells, SayWhatIsWrongWithThem) {
  expect_no_recording({
      {"layer,expert,count\n3,0.5,7\n", "f: line 2, column 2: '0.5' is no expert id in 0..65535"},
      {"layer,expert,count\n-1,0,7\n", "f: line 2, column 1: '-1' is no layer number in 0..65535"},
      {"layer,expert,count\n3,0,-7\n", "f: line 2, column 3: is -7; a count is 0 or more"},
      {"layer,expert,count\n3,0\n", "f: line 2: has 2 cells, but the first line has 3"},
      {"layer,expert,count\n3,,1\n", "f: line 2, column 2: is blank"},
      {"layer,e0,e1\nx,5,6\n", "f: line 2, column 1: 'x' is not a number"},
      {"1;2,5\n",
       "f: line 1, column 2: '2,5' has a comma; write decimals with a point, and thousands without a mark, "
       "and the line is not one of column names"},
      {"1;2\n3;4,5\n",
       "f: line 2, column 2: '4,5' has a comma; write decimals with a point, and thousands without a mark"},
      {"1\t2,5\n", HasSubstr("f: line 1, column 2: '2,5' has a comma")},
      {"1,\"2\n", "f: line 1: has a quote that is not closed"},
      {"1,\"2\"3\n", "f: line 1, column 2: has '3' after its closing quote"},
      {"1,2\n#N/A,7\n3,4\n", "f: line 2, column 1: '#N/A' is not a number", as_layers},
      {"1.5,2\n2,nan\n", "f: line 2, column 2: 'nan' is not a number"},
      {"1.5,2\n2,-0.5\n", HasSubstr("element 3 is -0.5"), as_layers},
  });
  std::string wide = "layer,expert,count\n0,0,1\n";
  for (int layer = 1; layer < 60; ++layer) wide += std::to_string(layer) + ",65535,1\n";
  expect_no_recording(
      {{wide,
        "f: has only 60 numbers for 60 layers of 65536 experts; are the ids of layers and experts right?"}});
}

TEST(FirstLine, IsNamesOnlyByEvidence) {
  for (const std::string cell : {"nan", "inf", "O12", "=6+6", "NaN", "#N/A", "-", "1_2"}) {
    const std::string why = ": '" + cell + "' is not a number, and the line is not one of column names";
    expect_no_recording({{"4," + cell + ",3\n4,5,6\n", "f: line 1, column 2" + why},
                         {cell + ",1,3\n4,5,6\n", "f: line 1, column 1" + why}});
  }
  expect_counts("+12,1,3\n4,5,6\n", {}, RoutingProfile(2, 3, {12, 1, 3, 4, 5, 6}, {}), as_layers);
}

TEST(TableLines, EndInAnyOfThreeWays) {
  const RoutingProfile expected(2, 2, {1, 2, 3, 4}, {});
  for (const char* text : {"1,2\n3,4\n", "1,2\r\n3,4\r\n", "1,2\r3,4\r", "1,2\r\r3,4", "\n1,2,\n3,4,\n",
                           "\"1\", \"2\"\n3,\t4\n", "1,\t2\n3,\t4\n"})
    expect_counts(text, {}, expected, as_layers);
}

TEST(TableCells, ThatAreNotWholeAreLoadsOfWhichRatiosMatter) {
  const Recording file = table_of("layer,e0,e1\n3,0.5,3\n4,0.125,0\n");
  EXPECT_EQ(without_numbers(file.profile), RoutingProfile(2, 2, {4, 24, 1, 0}, {}));
  EXPECT_THAT(file.notes, ElementsAre("loads that are not whole numbers are scaled by 2^3"));
  EXPECT_THAT(table_of("layer,e0,e1\n3,5e0,3.0\n").notes, IsEmpty());
}

TEST(JsonLists, ThatAreNotWholeAreLoadsOfWhichRatiosMatter) {
  for (const char* text : {"[[0.5, 3], [0.125, 0]]", R"({"logical_count": [[0.5, 3], [0.125, 0]]})"}) {
    const Recording file = read_recording(source_of(text), *text == '[' ? as_layers : ReadOptions{});
    EXPECT_EQ(without_numbers(file.profile), RoutingProfile(2, 2, {4, 24, 1, 0}, {}));
    EXPECT_THAT(file.notes, Contains("loads that are not whole numbers are scaled by 2^3"));
  }
  expect_no_recording({{"[[0.5, -3]]", HasSubstr("element 1 is -3"), as_layers},
                       {"[[0.5, \"3\"]]", HasSubstr("[0][1]: is a JSON string, not a number")},
                       {"[[0.5, 3], [1]]", HasSubstr("has 1 elements, but the first list has 2")}});
}

}  // namespace
}  // namespace evenkeel
