// Permuted checkpoints: every expert's bytes under its new name, and everything else as it was.
#include "evenkeel/io/permute_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "evenkeel/base/error.h"
#include "evenkeel/io/expert_map_file.h"
#include "evenkeel/plan/contiguous_order.h"
#include "tests/io/checkpoint/tiny_checkpoint.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

// The experts of a layer in their new order, found from the homes alone: by rank, then by number.
std::vector<int> oracle_order(const LayerPlacement& layer) {
  std::vector<std::pair<int, int>> by_home;
  for (int expert = 0; expert < layer.num_experts(); ++expert)
    by_home.emplace_back(layer.homes(ExpertId(expert)).front().value(), expert);
  std::ranges::sort(by_home);
  std::vector<int> order;
  for (const auto& [rank, expert] : by_home) order.push_back(expert);
  return order;
}

std::string rows_in(const ReadTensor& tensor, const std::vector<int>& order) {
  const std::size_t row = tensor.data.size() / order.size();
  std::string data;
  for (const int expert : order) data += tensor.data.substr(static_cast<std::size_t>(expert) * row, row);
  return data;
}

// The data that a tensor should hold, by its name: orders[layer of the model].
std::string expected_data(const std::string& name, const std::map<std::string, ReadTensor>& before,
                          const std::map<int, std::vector<int>>& orders) {
  static const std::regex of_expert(R"((model\.layers\.(\d+)\..*\.experts\.)(\d+)(\..*))");
  static const std::regex by_row(
      R"(model\.layers\.(\d+)\.(mlp|block_sparse_moe)\.((experts\.[a-z].*)|((gate|router)\..*)))");
  std::smatch found;
  if (std::regex_match(name, found, of_expert) && orders.contains(std::stoi(found[2]))) {
    const int source = orders.at(std::stoi(found[2]))[static_cast<std::size_t>(std::stoi(found[3]))];
    return before.at(found[1].str() + std::to_string(source) + found[4].str()).data;
  }
  if (std::regex_match(name, found, by_row) && orders.contains(std::stoi(found[1])))
    return rows_in(before.at(name), orders.at(std::stoi(found[1])));
  return before.at(name).data;
}

std::vector<int> model_layers(const std::string& family, int count) {
  std::vector<int> layers;
  for (int l = 0; l < count; ++l) layers.push_back(l + (family == "deepseek_v3" ? 1 : 0));
  return layers;
}

// Every file of a folder is in another, byte for byte.
void expect_copied(const std::string& folder, const std::string& copy) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    EXPECT_EQ(read_text(copy + "/" + entry.path().filename().string()), read_text(entry.path()));
}

struct Case {
  std::string family;
  bool stacked;
};

class EveryFamily : public testing::TestWithParam<Case> {
 protected:
  // Whole groups where the family has groups.
  Placement placement(unsigned seed, int layers = 0) const {
    return shuffled_placement(layers > 0 ? layers : tiny_moe_layers(GetParam().family), 8, 4, seed,
                              GetParam().family == "deepseek_v3" ? 4 : 1);
  }
  std::string write() {
    write_checkpoint(tiny_checkpoint(GetParam().family, GetParam().stacked), folder_ / "in");
    return folder_ / "in";
  }
  void expect_permuted(const Placement& placement) {
    const auto before = read_tensors(folder_ / "in");
    const auto after = read_tensors(folder_ / "out");
    std::map<int, std::vector<int>> orders;
    const auto layers = model_layers(GetParam().family, placement.num_layers());
    for (int l = 0; l < placement.num_layers(); ++l)
      orders[layers[static_cast<std::size_t>(l)]] = oracle_order(placement.layer(l));
    ASSERT_EQ(after.size(), before.size());
    for (const auto& [name, tensor] : after) {
      EXPECT_EQ(tensor.data, expected_data(name, before, orders)) << name;
      EXPECT_EQ(tensor.shape, before.at(name).shape) << name;
      EXPECT_EQ(tensor.dtype, before.at(name).dtype) << name;
    }
  }

  TempFolder folder_;
};

TEST_P(EveryFamily, GetsEachExpertAndItsRouterRowUnderTheNewNumber) {
  write();
  for (unsigned seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(seed);
    std::filesystem::remove_all(folder_ / "out");
    const Placement placed = placement(seed);
    const PermutedCheckpoint done = permute_checkpoint(folder_ / "in", placed, folder_ / "out");
    expect_permuted(placed);
    EXPECT_EQ(done.family, GetParam().family);
    EXPECT_EQ(done.layers, model_layers(GetParam().family, placed.num_layers()));
  }
}

TEST_P(EveryFamily, KeepsHeadersIndexAndEveryOtherFileByteForByte) {
  write();
  write_text(folder_ / "in/tokenizer.json", "{\"a\": \"\xff not text\"}");
  std::filesystem::create_directories(folder_ / "in/original/empty");
  write_text(folder_ / "in/original/params.json", "{}");
  permute_checkpoint(folder_ / "in", placement(7), folder_ / "out");
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "in")) {
    const std::string copy = (folder_ / "out") + entry.path().string().substr((folder_ / "in").size());
    ASSERT_TRUE(std::filesystem::exists(copy)) << copy;
    if (entry.is_directory()) continue;
    ++files;
    const std::string text = read_text(entry.path());
    if (entry.path().extension() == ".safetensors") {
      EXPECT_EQ(read_header_bytes(copy), read_header_bytes(entry.path())) << copy;
      EXPECT_EQ(read_text(copy).size(), text.size()) << copy;
    } else {
      EXPECT_EQ(read_text(copy), text) << copy;
    }
  }
  EXPECT_GE(files, 4);
}

TEST_P(EveryFamily, PermutedBackIsWhatItWas) {
  write();
  permute_checkpoint(folder_ / "in", placement(11), folder_ / "out");
  std::vector<std::vector<int>> old_ids;
  for (const auto& [layer, ids] : read_expert_map(folder_ / "out/evenkeel_placement.json").new_ids) {
    old_ids.emplace_back(ids.size());
    for (std::size_t old = 0; old < ids.size(); ++old)
      old_ids.back()[ids[old].offset()] = static_cast<int>(old);
  }
  permute_checkpoint(folder_ / "out", placement_by_ids(old_ids), folder_ / "back");
  expect_copied(folder_ / "in", folder_ / "back");
  for (const auto& [layer, ids] : read_expert_map(folder_ / "back/evenkeel_placement.json").new_ids)
    for (std::size_t old = 0; old < ids.size(); ++old) EXPECT_EQ(ids[old].offset(), old);
}

TEST_P(EveryFamily, CountsWhatItDid) {
  write();
  std::int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "in"))
    bytes += std::int64_t(entry.file_size());
  const PermutedCheckpoint done = permute_checkpoint(folder_ / "in", placement(3), folder_ / "out");
  const auto before = read_tensors(folder_ / "in");
  const auto after = read_tensors(folder_ / "out");
  std::int64_t changed = 0;
  for (const auto& [name, tensor] : before) changed += tensor.data != after.at(name).data ? 1 : 0;
  EXPECT_EQ(done.tensors_permuted + done.tensors_renamed, changed);
  EXPECT_EQ(done.tensors_permuted + done.tensors_renamed + done.tensors_copied, std::ssize(before));
  EXPECT_EQ(done.tensors_renamed > 0, !GetParam().stacked && GetParam().family != "gpt_oss");
  EXPECT_EQ(done.total_bytes, bytes);
  EXPECT_EQ(done.num_files, std::distance(std::filesystem::directory_iterator(folder_ / "in"), {}));
}

TEST_P(EveryFamily, UnderAContiguousPlacementIsCopied) {
  write();
  const PermutedCheckpoint done = permute_checkpoint(
      folder_ / "in", Placement::contiguous(tiny_moe_layers(GetParam().family), 8, 2), folder_ / "out");
  EXPECT_EQ(done.tensors_permuted, 0);
  EXPECT_EQ(done.tensors_renamed, 0);
  expect_copied(folder_ / "in", folder_ / "out");
}

std::vector<Case> every_case() {
  std::vector<Case> cases;
  for (const std::string& family : tiny_families())
    for (const bool stacked : {false, true}) cases.push_back({family, stacked});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Permuted, EveryFamily, testing::ValuesIn(every_case()), [](const auto& each) {
  return each.param.family + (each.param.stacked ? "_stacked" : "");
});

TEST(PermuteCheckpoint, KnowsAModelThatOnlyRenamesAFamily) {
  TempFolder folder;
  TinyCheckpoint checkpoint = tiny_checkpoint("deepseek_v3");
  checkpoint.config = std::regex_replace(checkpoint.config, std::regex(R"("deepseek_v3")"), "\"kimi_k2\"");
  write_checkpoint(checkpoint, folder / "in");
  EXPECT_EQ(permute_checkpoint(folder / "in", shuffled_placement(2, 8, 4, 1, 4), folder / "out").family,
            "deepseek_v3");
}

// Every name that begins with `from` begins with `to` instead.
void rename_all(TinyCheckpoint& checkpoint, const std::string& from, const std::string& to) {
  for (TinyTensor& tensor : checkpoint.tensors)
    if (tensor.name.starts_with(from)) tensor.name = to + tensor.name.substr(from.size());
}

TEST(PermuteCheckpoint, TakesALanguageModelInsideAnother) {
  TempFolder folder;
  TinyCheckpoint checkpoint = tiny_checkpoint("deepseek_v3");
  rename_all(checkpoint, "model.", "language_model.model.");
  // A tower for images has layers too, and modules of the same names.
  for (const char* name :
       {"vision_tower.encoder.blocks.0.mlp.fc0.weight", "vision_tower.layers.1.mlp.gate_proj.weight"})
    checkpoint.tensors.push_back({name, "BF16", {8}, "0123456789abcdef"});
  checkpoint.config = R"({"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"],
      "text_config": )" +
                      checkpoint.config + "}";
  write_checkpoint(checkpoint, folder / "in");
  const auto done = permute_checkpoint(folder / "in", shuffled_placement(2, 8, 4, 1, 4), folder / "out");
  EXPECT_EQ(done.layers, (std::vector<int>{1, 2}));
  const std::string name = "language_model.model.layers.1.mlp.gate.weight";
  EXPECT_NE(read_tensors(folder / "out").at(name).data, read_tensors(folder / "in").at(name).data);
}

TEST(PermuteCheckpoint, LeavesMultiTokenPredictionAloneUnlessThePlacementIsForIt) {
  // Numbered on from the hidden layers, or by themselves.
  for (const std::string layer : {"model.layers.3.", "mtp.layers.0."}) {
    TempFolder folder;
    TinyCheckpoint checkpoint = tiny_checkpoint("deepseek_v3");
    rename_all(checkpoint, "model.layers.3.", layer);
    write_checkpoint(checkpoint, folder / "in");
    const auto two = permute_checkpoint(folder / "in", shuffled_placement(2, 8, 4, 1, 4), folder / "two");
    EXPECT_EQ(two.layers, (std::vector<int>{1, 2}));
    EXPECT_EQ(two.kept_layers, std::vector<int>{3});
    const auto all = permute_checkpoint(folder / "in", shuffled_placement(3, 8, 4, 1, 4), folder / "all");
    EXPECT_EQ(all.layers, (std::vector<int>{1, 2, 3}));
    EXPECT_TRUE(all.kept_layers.empty());
    const std::string name = layer + "mlp.gate.weight";
    const std::string before = read_tensors(folder / "in").at(name).data;
    EXPECT_EQ(read_tensors(folder / "two").at(name).data, before);
    EXPECT_NE(read_tensors(folder / "all").at(name).data, before);
  }
}

TEST(PermuteCheckpoint, LeavesLayersAloneThatAPlacementWithNumbersIsNotFor) {
  TempFolder folder;
  write_checkpoint(tiny_checkpoint("deepseek_v3"), folder / "in");
  const Placement placement = shuffled_placement(2, 8, 4, 1, 4).numbered(LayerNumbers({0, 2}));
  const auto done = permute_checkpoint(folder / "in", placement, folder / "out");
  EXPECT_EQ(done.layers, std::vector<int>{2});
  EXPECT_EQ(done.kept_layers, (std::vector<int>{1, 3}));
  const auto before = read_tensors(folder / "in");
  const auto after = read_tensors(folder / "out");
  for (const auto& [name, tensor] : before) {
    if (name.starts_with("model.layers.2.")) continue;
    EXPECT_EQ(after.at(name).data, tensor.data) << name;
  }
  EXPECT_EQ(after.at("model.layers.2.mlp.gate.weight").data,
            rows_in(before.at("model.layers.2.mlp.gate.weight"), oracle_order(placement.layer(1))));
  const Placement other = placement.numbered(LayerNumbers({0, 7}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { permute_checkpoint(folder / "in", other, folder / "no"); }),
            "placement: it has layers 0,7, but the checkpoint has layers 1-3; allowed: one with layers 1-3");
}

TEST(PermuteCheckpoint, RenumbersTablesOfExpertIds) {
  TempFolder folder;
  // DeepSeek-V4 chooses the experts of its first layers by the token.
  TinyCheckpoint checkpoint{
      R"({"model_type": "deepseek_v4", "num_hidden_layers": 1, "n_routed_experts": 8})", {}, 1};
  std::string ids;
  std::vector<int> old_ids;
  for (int i = 0; i < 600; ++i) {
    old_ids.push_back(i * i % 8);
    ids += std::string(1, static_cast<char>(old_ids.back())) + std::string(7, '\0');
  }
  checkpoint.tensors.push_back({"layers.0.ffn.gate.tid2eid", "I64", {300, 2}, ids});
  checkpoint.tensors.push_back({"layers.0.ffn.gate.weight", "F32", {8, 1}, std::string(32, 'w')});
  for (int expert = 0; expert < 8; ++expert)
    checkpoint.tensors.push_back({"layers.0.ffn.experts." + std::to_string(expert) + ".w1.weight",
                                  "U8",
                                  {1},
                                  std::string(1, static_cast<char>('a' + expert))});
  write_checkpoint(checkpoint, folder / "in");
  const Placement placement = shuffled_placement(1, 8, 4, 5);
  permute_checkpoint(folder / "in", placement, folder / "out");
  const auto after = read_tensors(folder / "out");
  const std::string made = after.at("layers.0.ffn.gate.tid2eid").data;
  for (std::size_t i = 0; i < old_ids.size(); ++i) {
    const int id = static_cast<unsigned char>(made[8 * i]);
    EXPECT_EQ(made.substr(8 * i + 1, 7), std::string(7, '\0'));
    // The same expert, by the bytes of its tensor.
    EXPECT_EQ(after.at("layers.0.ffn.experts." + std::to_string(id) + ".w1.weight").data,
              std::string(1, static_cast<char>('a' + old_ids[i])));
  }
  EXPECT_NE(made, ids);

  checkpoint.tensors.front().data[8] = 8;
  write_checkpoint(checkpoint, folder / "in");
  EXPECT_EQ(message_of<ParseError>([&] { permute_checkpoint(folder / "in", placement, folder / "no"); }),
            (folder / "in") +
                "/model.safetensors: layers.0.ffn.gate.tid2eid: has a number that is no id of an "
                "expert: in 8 bytes 0x8; right would be 0..7");
  EXPECT_FALSE(std::filesystem::exists(folder / "no"));
  checkpoint.tensors.front().dtype = "F64";
  write_checkpoint(checkpoint, folder / "in");
  EXPECT_EQ(message_of<Unsupported>([&] { permute_checkpoint(folder / "in", placement, folder / "no"); }),
            "layers.0.ffn.gate.tid2eid is a table of expert ids of type F64, which are no whole numbers");
}

TEST(PermuteCheckpoint, KeepsAScaleThatAllStackedExpertsShare) {
  TempFolder folder;
  TinyCheckpoint checkpoint = tiny_checkpoint("olmoe", true);
  checkpoint.tensors.push_back({"model.layers.0.mlp.experts.down_proj_input_scale", "F32", {1}, "abcd"});
  checkpoint.tensors.push_back(
      {"model.layers.0.mlp.experts.down_proj_weight_scale", "U8", {8, 1}, "01234567"});
  write_checkpoint(checkpoint, folder / "in");
  const Placement placement = shuffled_placement(2, 8, 4, 1);
  permute_checkpoint(folder / "in", placement, folder / "out");
  const auto after = read_tensors(folder / "out");
  EXPECT_EQ(after.at("model.layers.0.mlp.experts.down_proj_input_scale").data, "abcd");
  EXPECT_EQ(after.at("model.layers.0.mlp.experts.down_proj_weight_scale").data,
            rows_in({"U8", {8, 1}, "01234567"}, oracle_order(placement.layer(0))));
}

TEST(PermuteCheckpoint, LeavesRowsOfARouterBehindThoseOfTheExperts) {
  TempFolder folder;
  TinyCheckpoint checkpoint = tiny_checkpoint("olmoe", true);
  checkpoint.config = R"({"model_type": "inkling_text", "num_hidden_layers": 2, "n_routed_experts": 8})";
  const std::string rows = "00112233445566778899";
  for (TinyTensor& tensor : checkpoint.tensors)
    if (tensor.name.ends_with("gate.weight")) tensor = {tensor.name, "U8", {10, 2}, rows};
  write_checkpoint(checkpoint, folder / "in");
  const Placement placement = shuffled_placement(2, 8, 4, 1);
  permute_checkpoint(folder / "in", placement, folder / "out");
  EXPECT_EQ(read_tensors(folder / "out").at("model.layers.1.mlp.gate.weight").data,
            rows_in({"U8", {8, 2}, rows.substr(0, 16)}, oracle_order(placement.layer(1))) + "8899");
  checkpoint.config = R"({"model_type": "olmoe", "num_hidden_layers": 2, "num_experts": 8})";
  write_checkpoint(checkpoint, folder / "other");
  EXPECT_THROW(permute_checkpoint(folder / "other", placement, folder / "no"), ParseError);
}

TEST(PermuteCheckpoint, TakesAnIndexOfAnyNameAndABareModelWhoseNamesLackTheModelBefore) {
  TempFolder folder;
  TinyCheckpoint checkpoint = tiny_checkpoint("olmoe");
  rename_all(checkpoint, "model.", "");
  write_checkpoint(checkpoint, folder / "in");
  std::filesystem::rename(folder / "in/model.safetensors.index.json",
                          folder / "in/quant_model_weight_w8a8_dynamic.safetensors.index.json");
  EXPECT_GT(permute_checkpoint(folder / "in", shuffled_placement(2, 8, 4, 1), folder / "out").tensors_renamed,
            0);
}

TEST(PermuteCheckpoint, FollowsLinksToFilesAndLeavesDownloadRecordsBehind) {
  TempFolder folder;
  write_checkpoint(tiny_checkpoint("gpt_oss"), folder / "blobs");
  std::filesystem::create_directories(folder / "in/.cache/huggingface");
  std::filesystem::create_directories(folder / "in/.git");
  write_text(folder / "in/.git/config", "x");
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::create_symlink((folder / "blobs/") + name, (folder / "in/") + name);
  permute_checkpoint(folder / "in", shuffled_placement(2, 8, 4, 1), folder / "out");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "out")) {
    EXPECT_FALSE(entry.is_symlink());
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"config.json", "evenkeel_placement.json", "model.safetensors"}));
}

TEST(PermuteCheckpoint, NamesFilesThatMayHoldWeightsInTheOldOrder) {
  TempFolder folder;
  write_checkpoint(tiny_checkpoint("mixtral"), folder / "in");
  std::filesystem::create_directories(folder / "in/original");
  for (const char* name :
       {"consolidated.safetensors", "original/model.pth", "training_args.bin", "notes.txt"})
    write_text((folder / "in/") + name, "x");
  const auto done = permute_checkpoint(folder / "in", shuffled_placement(2, 8, 4, 1), folder / "out");
  EXPECT_EQ(done.other_weights, (std::vector<std::string>{"consolidated.safetensors", "original/model.pth"}));
}

TEST(PermuteCheckpoint, SaysWhatKilledRunsHaveLeft) {
  TempFolder folder;
  write_checkpoint(tiny_checkpoint("gpt_oss"), folder / "in");
  std::filesystem::create_directories(folder / "out.123-0.part");
  std::filesystem::create_directories(folder / "other.123-0.part");
  const auto done = permute_checkpoint(folder / "in", shuffled_placement(2, 8, 4, 1), folder / "out");
  ASSERT_EQ(done.leftovers.size(), 1U);
  EXPECT_TRUE(done.leftovers.front().ends_with("/out.123-0.part"));
  EXPECT_TRUE(std::filesystem::exists(done.leftovers.front()));
}

TEST(PermuteCheckpoint, RecordsOldAndNewNumbersFromTheFirstCheckpointOn) {
  TempFolder folder;
  write_checkpoint(tiny_checkpoint("deepseek_v3"), folder / "in");
  const Placement first = shuffled_placement(2, 8, 4, 1, 4);
  const Placement then = shuffled_placement(3, 8, 2, 2, 4);
  permute_checkpoint(folder / "in", first, folder / "one");
  permute_checkpoint(folder / "one", then, folder / "two");
  const ExpertMap map = read_expert_map(folder / "two/evenkeel_placement.json");
  EXPECT_EQ(map.num_ranks, 2);
  ASSERT_EQ(map.new_ids.size(), 3U);
  const auto before = read_tensors(folder / "in");
  const auto after = read_tensors(folder / "two");
  for (const auto& [layer, ids] : map.new_ids)
    for (std::size_t old = 0; old < ids.size(); ++old) {
      const auto name = [&, at = layer](std::size_t expert) {
        return "model.layers." + std::to_string(at) + ".mlp.experts." + std::to_string(expert) +
               ".up_proj.weight";
      };
      EXPECT_EQ(after.at(name(ids[old].offset())).data, before.at(name(old)).data);
    }
}

}  // namespace
}  // namespace evenkeel
