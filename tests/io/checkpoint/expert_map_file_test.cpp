// The file that maps new expert numbers of a permuted checkpoint to the original ones.
#include "evenkeel/io/expert_map_file.h"

#include "tests/io/support.h"

namespace evenkeel {
namespace {

std::vector<ExpertId> ids(const std::vector<int>& numbers) {
  std::vector<ExpertId> list;
  for (const int number : numbers) list.emplace_back(number);
  return list;
}

TEST(ExpertMap, IsReadAsItWasWritten) {
  TempFolder folder;
  const ExpertMap map{
      .num_experts = 3, .num_ranks = 1, .new_ids = {{1, ids({2, 0, 1})}, {4, ids({0, 1, 2})}}};
  write_expert_map(map, folder / "map.json");
  EXPECT_EQ(read_text(folder / "map.json"),
            "{\"format\":\"evenkeel.expert_map.v1\",\"num_experts\":3,\"num_ranks\":1,\"model_layers\":[1,4],"
            "\"old_to_new\":[[2,0,1],[0,1,2]]}\n");
  const ExpertMap read = read_expert_map(folder / "map.json");
  EXPECT_EQ(read.num_experts, 3);
  EXPECT_EQ(read.num_ranks, 1);
  EXPECT_EQ(read.new_ids, map.new_ids);
}

TEST(ExpertMap, AfterAnotherSaysWhereTheFirstExpertsWent) {
  const ExpertMap first{
      .num_experts = 3, .num_ranks = 1, .new_ids = {{0, ids({1, 2, 0})}, {2, ids({0, 2, 1})}}};
  const ExpertMap then{
      .num_experts = 3, .num_ranks = 3, .new_ids = {{0, ids({0, 2, 1})}, {1, ids({2, 1, 0})}}};
  const ExpertMap both = composed(first, then);
  EXPECT_EQ(both.num_ranks, 3);
  EXPECT_EQ(both.new_ids, (std::map<int, std::vector<ExpertId>>{
                              {0, ids({2, 1, 0})}, {1, ids({2, 1, 0})}, {2, ids({0, 2, 1})}}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { composed(first, {.num_experts = 4, .num_ranks = 1}); }),
            "expert map: the earlier map has 3 experts, the new one 4; allowed: the same number of experts");
}

TEST(ExpertMap, ThatIsDamagedIsRefused) {
  const auto with = [](const std::string& layers, const std::string& lists) {
    return R"({"format": "evenkeel.expert_map.v1", "num_experts": 2, "num_ranks": 1, "model_layers": )" +
           layers + R"(, "old_to_new": )" + lists + "}";
  };
  const std::vector<Refused> damaged = {
      {with("[0]", "[[0, 0]]"), "f: old_to_new[0]: id 0 is listed twice"},
      {with("[0]", "[[0, 2]]"), "f: old_to_new[0]: id 2 is outside 0..1"},
      {with("[0]", "[[0]]"), "f: old_to_new[0]: has 1 ids, but there are 2 experts"},
      {with("[0]", "[]"), "f: old_to_new: is not a list of 1 layers, as many as model_layers has"},
      {with("[0, 0]", "[[0, 1], [0, 1]]"), "f: model_layers: layer 0 is listed twice"},
      {"[]", "f: is not a JSON object"},
      {R"({"format": 1})", "f: format: is 1, not \"evenkeel.expert_map.v1\""},
  };
  expect_refused([](const std::string& text) { read_expert_map(source_of(text)); }, damaged);
}

}  // namespace
}  // namespace evenkeel
