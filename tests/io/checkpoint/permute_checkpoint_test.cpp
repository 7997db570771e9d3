// Permuted checkpoints: every expert's bytes are under its new name, and everything else is unchanged.
#include "evenkeel/io/permute_checkpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "evenkeel/io/expert_map_file.h"
#include "evenkeel/plan/contiguous_order.h"
#include "tests/io/checkpoint/tiny_checkpoint.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

// A layer's experts in their new order, derived only from the homes: sorted by rank, then by expert number.
std::vector<int> oracle_order(const LayerPlacement& layer) {
  std::vector<std::pair<int, int>> by_home;
  for (int expert = 0; expert < layer.num_experts(); ++expert)
    by_home.emplace_back(layer.homes(ExpertId(expert)).front().value(), expert);
  std::ranges::sort(by_home);
  std::vector<int> order;
  for (const auto& [rank, expert] : by_home) order.push_back(expert);
  return order;
}

std::string rows_in(const FileTensor& tensor, const std::vector<int>& order) {
  const std::size_t row = tensor.data.size() / order.size();
  std::string data;
  for (const int expert : order) data += tensor.data.substr(static_cast<std::size_t>(expert) * row, row);
  return data;
}

// The data that the tensor `name` should hold. `orders` maps a model layer to its experts' new order.
std::string expected_data(const std::string& name, const std::map<std::string, FileTensor>& before,
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

// Expects every file of `folder` in `copy`, byte for byte.
void expect_copied(const std::string& folder, const std::string& copy) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    EXPECT_EQ(read_text(copy + "/" + entry.path().filename().string()), read_text(entry.path()));
}

class PermuteCheckpoint : public InFolder {
 protected:
  // Writes a checkpoint as "in", and its permuted copy as "out".
  PermutedCheckpoint permute(const TinyCheckpoint& checkpoint,
                             const Placement& placement = shuffled_placement(2, 8, 4, 1)) {
    std::filesystem::remove_all(folder / "out");
    write_checkpoint(checkpoint, folder / "in");
    return permute_checkpoint(folder / "in", placement, folder / "out");
  }
  std::string data_of(const std::string& name, const std::string& of = "out") const {
    return read_tensors(folder / of).at(name).data;
  }
};

class EveryFamily : public PermuteCheckpoint,
                    public testing::WithParamInterface<std::tuple<std::string, bool>> {
 protected:
  std::string family() const { return std::get<0>(GetParam()); }
  bool stacked() const { return std::get<1>(GetParam()); }
  // Keeps groups of experts together if the family has groups.
  Placement placement(unsigned seed) const {
    return shuffled_placement(tiny_moe_layers(family()), 8, 4, seed, family() == "deepseek_v3" ? 4 : 1);
  }
  PermutedCheckpoint permute(const Placement& placement) {
    return PermuteCheckpoint::permute(tiny_checkpoint(family(), stacked()), placement);
  }
  void expect_permuted(const Placement& placement) {
    const auto before = read_tensors(folder / "in");
    const auto after = read_tensors(folder / "out");
    std::map<int, std::vector<int>> orders;
    const auto layers = model_layers(family(), placement.num_layers());
    for (int l = 0; l < placement.num_layers(); ++l)
      orders[layers[static_cast<std::size_t>(l)]] = oracle_order(placement.layer(l));
    ASSERT_EQ(after.size(), before.size());
    for (const auto& [name, tensor] : after) {
      EXPECT_EQ(tensor.data, expected_data(name, before, orders)) << name;
      EXPECT_EQ(tensor.shape, before.at(name).shape) << name;
      EXPECT_EQ(tensor.dtype, before.at(name).dtype) << name;
    }
  }
};

TEST_P(EveryFamily, GetsEachExpertAndItsRouterRowUnderTheNewNumber) {
  for (unsigned seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(seed);
    const Placement placed = placement(seed);
    const PermutedCheckpoint done = permute(placed);
    expect_permuted(placed);
    EXPECT_EQ(done.family, family());
    EXPECT_EQ(done.layers, model_layers(family(), placed.num_layers()));
  }
}

TEST_P(EveryFamily, KeepsHeadersIndexAndEveryOtherFileByteForByte) {
  std::filesystem::create_directories(folder / "in/original/empty");
  write_text(folder / "in/tokenizer.json", "{\"a\": \"\xff not text\"}");
  write_text(folder / "in/original/params.json", "{}");
  permute(placement(7));
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "in")) {
    const std::string copy = (folder / "out") + entry.path().string().substr((folder / "in").size());
    ASSERT_TRUE(std::filesystem::exists(copy)) << copy;
    if (entry.is_directory()) continue;
    ++files;
    const bool tensors = entry.path().extension() == ".safetensors";
    const auto kept = tensors ? read_header_bytes : read_text;
    EXPECT_EQ(kept(copy), kept(entry.path())) << copy;
    EXPECT_EQ(std::filesystem::file_size(copy), entry.file_size()) << copy;
  }
  EXPECT_GE(files, 4);
}

TEST_P(EveryFamily, PermutedBackIsWhatItWas) {
  permute(placement(11));
  std::vector<std::vector<int>> old_ids;
  for (const auto& [layer, ids] : read_expert_map(folder / "out/evenkeel_placement.json").new_ids) {
    old_ids.emplace_back(ids.size());
    for (std::size_t old = 0; old < ids.size(); ++old)
      old_ids.back()[ids[old].offset()] = static_cast<int>(old);
  }
  permute_checkpoint(folder / "out", placement_by_ids(old_ids), folder / "back");
  expect_copied(folder / "in", folder / "back");
  for (const auto& [layer, ids] : read_expert_map(folder / "back/evenkeel_placement.json").new_ids)
    for (std::size_t old = 0; old < ids.size(); ++old) EXPECT_EQ(ids[old].offset(), old);
}

TEST_P(EveryFamily, CountsWhatItDid) {
  const PermutedCheckpoint done = permute(placement(3));
  std::int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "in"))
    bytes += std::int64_t(entry.file_size());
  const auto before = read_tensors(folder / "in");
  const auto after = read_tensors(folder / "out");
  std::int64_t changed = 0;
  for (const auto& [name, tensor] : before) changed += tensor.data != after.at(name).data ? 1 : 0;
  EXPECT_EQ(done.tensors_permuted + done.tensors_renamed, changed);
  EXPECT_EQ(done.tensors_permuted + done.tensors_renamed + done.tensors_copied, std::ssize(before));
  EXPECT_EQ(done.tensors_renamed > 0, !stacked() && family() != "gpt_oss");
  EXPECT_EQ(done.total_bytes, bytes);
  EXPECT_EQ(done.num_files, std::distance(std::filesystem::directory_iterator(folder / "in"), {}));
}

TEST_P(EveryFamily, UnderAContiguousPlacementIsCopied) {
  const PermutedCheckpoint done = permute(Placement::contiguous(tiny_moe_layers(family()), 8, 2));
  EXPECT_EQ(done.tensors_permuted, 0);
  EXPECT_EQ(done.tensors_renamed, 0);
  expect_copied(folder / "in", folder / "out");
}

INSTANTIATE_TEST_SUITE_P(Permuted, EveryFamily,
                         testing::Combine(testing::ValuesIn(tiny_families()), testing::Bool()),
                         [](const auto& each) {
                           return std::get<0>(each.param) + (std::get<1>(each.param) ? "_stacked" : "");
                         });

TEST_F(PermuteCheckpoint, KnowsAModelThatOnlyRenamesAFamily) {
  TinyCheckpoint checkpoint = tiny_checkpoint("deepseek_v3");
  checkpoint.config = std::regex_replace(checkpoint.config, std::regex(R"("deepseek_v3")"), "\"kimi_k2\"");
  EXPECT_EQ(permute(checkpoint, shuffled_placement(2, 8, 4, 1, 4)).family, "deepseek_v3");
}

// Replaces the prefix `from` of tensor names with `to`.
void rename_all(TinyCheckpoint& checkpoint, const std::string& from, const std::string& to) {
  for (FileTensor& tensor : checkpoint.tensors)
    if (tensor.name.starts_with(from)) tensor.name = to + tensor.name.substr(from.size());
}

TEST_F(PermuteCheckpoint, TakesALanguageModelInsideAnother) {
  TinyCheckpoint checkpoint = tiny_checkpoint("deepseek_v3");
  rename_all(checkpoint, "model.", "language_model.model.");
  // An image tower also has layers, with modules of the same names.
  for (const char* name :
       {"vision_tower.encoder.blocks.0.mlp.fc0.weight", "vision_tower.layers.1.mlp.gate_proj.weight"})
    checkpoint.tensors.push_back({name, "BF16", {8}, "0123456789abcdef"});
  checkpoint.config = R"({"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"],
      "text_config": )" +
                      checkpoint.config + "}";
  EXPECT_EQ(permute(checkpoint, shuffled_placement(2, 8, 4, 1, 4)).layers, (std::vector<int>{1, 2}));
  const std::string name = "language_model.model.layers.1.mlp.gate.weight";
  EXPECT_NE(data_of(name), data_of(name, "in"));
}

TEST_F(PermuteCheckpoint, LeavesMultiTokenPredictionAloneUnlessThePlacementIsForIt) {
  // The numbers of multi-token prediction layers continue those of the hidden layers, or start at 0.
  for (const std::string layer : {"model.layers.3.", "mtp.layers.0."}) {
    TinyCheckpoint checkpoint = tiny_checkpoint("deepseek_v3");
    rename_all(checkpoint, "model.layers.3.", layer);
    const std::string name = layer + "mlp.gate.weight";
    const auto two = permute(checkpoint, shuffled_placement(2, 8, 4, 1, 4));
    EXPECT_EQ(two.layers, (std::vector<int>{1, 2}));
    EXPECT_EQ(two.kept_layers, std::vector<int>{3});
    EXPECT_EQ(data_of(name), data_of(name, "in"));
    const auto all = permute(checkpoint, shuffled_placement(3, 8, 4, 1, 4));
    EXPECT_EQ(all.layers, (std::vector<int>{1, 2, 3}));
    EXPECT_TRUE(all.kept_layers.empty());
    EXPECT_NE(data_of(name), data_of(name, "in"));
  }
}

TEST_F(PermuteCheckpoint, LeavesLayersAloneThatAPlacementWithNumbersIsNotFor) {
  const Placement placement = shuffled_placement(2, 8, 4, 1, 4).numbered(LayerNumbers({0, 2}));
  const auto done = permute(tiny_checkpoint("deepseek_v3"), placement);
  EXPECT_EQ(done.layers, std::vector<int>{2});
  EXPECT_EQ(done.kept_layers, (std::vector<int>{1, 3}));
  const auto before = read_tensors(folder / "in");
  for (const auto& [name, tensor] : before) {
    if (!name.starts_with("model.layers.2.")) {
      EXPECT_EQ(data_of(name), tensor.data) << name;
    }
  }
  const std::string gate = "model.layers.2.mlp.gate.weight";
  EXPECT_EQ(data_of(gate), rows_in(before.at(gate), oracle_order(placement.layer(1))));
  const Placement other = placement.numbered(LayerNumbers({0, 7}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { permute_checkpoint(folder / "in", other, folder / "no"); }),
            "placement: it has layers 0,7, but the checkpoint has layers 1-3; allowed: one with layers 1-3");
}

TEST_F(PermuteCheckpoint, RenumbersTablesOfExpertIds) {
  // DeepSeek-V4 looks up the experts of its first layers in a table by token id.
  TinyCheckpoint checkpoint{
      R"({"model_type": "deepseek_v4", "num_hidden_layers": 1, "n_routed_experts": 8})", {}, 1};
  std::string ids;
  for (int i = 0; i < 600; ++i) ids += std::string(1, static_cast<char>(i * i % 8)) + std::string(7, '\0');
  const std::string module = "layers.0.ffn.", table = module + "gate.tid2eid";
  checkpoint.tensors.push_back({table, "I64", {300, 2}, ids});
  checkpoint.tensors.push_back({module + "gate.weight", "F32", {8, 1}, std::string(32, 'w')});
  // Each expert's tensor is one byte: the expert's old number.
  const auto name_of = [&](int expert) {
    return module + "experts." + std::to_string(expert) + ".w1.weight";
  };
  for (int expert = 0; expert < 8; ++expert)
    checkpoint.tensors.push_back({name_of(expert), "U8", {1}, std::string(1, static_cast<char>(expert))});
  const Placement placement = shuffled_placement(1, 8, 4, 5);
  permute(checkpoint, placement);
  const auto after = read_tensors(folder / "out");
  const std::string made = after.at(table).data;
  for (std::size_t i = 0; i < ids.size(); i += 8)
    EXPECT_EQ(after.at(name_of(made[i])).data + made.substr(i + 1, 7), ids.substr(i, 8));
  EXPECT_NE(made, ids);

  checkpoint.tensors.front().data[8] = 8;
  EXPECT_EQ(message_of<ParseError>([&] { permute(checkpoint, placement); }),
            (folder / "in") +
                "/model.safetensors: layers.0.ffn.gate.tid2eid: has the number 0x8 (8 bytes), which is not "
                "an expert id; allowed: 0..7");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  checkpoint.tensors.front().dtype = "F64";
  EXPECT_EQ(message_of<Unsupported>([&] { permute(checkpoint, placement); }),
            "layers.0.ffn.gate.tid2eid is a table of expert ids of type F64, which is not an integer type");
}

TEST_F(PermuteCheckpoint, KeepsAScaleThatAllStackedExpertsShare) {
  TinyCheckpoint checkpoint = tiny_checkpoint("olmoe", true);
  const std::string down = "model.layers.0.mlp.experts.down_proj";
  checkpoint.tensors.push_back({down + "_input_scale", "F32", {1}, "abcd"});
  checkpoint.tensors.push_back({down + "_weight_scale", "U8", {8, 1}, "01234567"});
  permute(checkpoint);
  EXPECT_EQ(data_of(down + "_input_scale"), "abcd");
  EXPECT_EQ(data_of(down + "_weight_scale"),
            rows_in({"", "U8", {8, 1}, "01234567"}, oracle_order(shuffled_placement(2, 8, 4, 1).layer(0))));
}

TEST_F(PermuteCheckpoint, LeavesRowsOfARouterBehindThoseOfTheExperts) {
  TinyCheckpoint checkpoint = tiny_checkpoint("olmoe", true);
  const std::string olmoe = std::exchange(
      checkpoint.config, R"({"model_type": "inkling_text", "num_hidden_layers": 2, "n_routed_experts": 8})");
  const std::string rows = "00112233445566778899";
  for (FileTensor& tensor : checkpoint.tensors)
    if (tensor.name.ends_with("gate.weight")) tensor = {tensor.name, "U8", {10, 2}, rows};
  permute(checkpoint);
  const auto order = oracle_order(shuffled_placement(2, 8, 4, 1).layer(1));
  EXPECT_EQ(data_of("model.layers.1.mlp.gate.weight"),
            rows_in({"", "U8", {8, 2}, rows.substr(0, 16)}, order) + "8899");
  checkpoint.config = olmoe;
  EXPECT_THROW(permute(checkpoint), ParseError);
}

TEST_F(PermuteCheckpoint, TakesAnIndexOfAnyNameAndABareModelWhoseNamesLackTheModelBefore) {
  TinyCheckpoint checkpoint = tiny_checkpoint("olmoe");
  rename_all(checkpoint, "model.", "");
  write_checkpoint(checkpoint, folder / "in");
  std::filesystem::rename(folder / "in/model.safetensors.index.json",
                          folder / "in/quant_model_weight_w8a8_dynamic.safetensors.index.json");
  EXPECT_GT(permute_checkpoint(folder / "in", shuffled_placement(2, 8, 4, 1), folder / "out").tensors_renamed,
            0);
}

TEST_F(PermuteCheckpoint, FollowsLinksToFilesAndLeavesDownloadRecordsBehind) {
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
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("config.json", "evenkeel_placement.json", "model.safetensors"));
}

TEST_F(PermuteCheckpoint, NamesFilesThatMayHoldWeightsInTheOldOrder) {
  std::filesystem::create_directories(folder / "in/original");
  for (const char* name :
       {"consolidated.safetensors", "original/model.pth", "training_args.bin", "notes.txt"})
    write_text((folder / "in/") + name, "x");
  EXPECT_EQ(permute(tiny_checkpoint("mixtral")).other_weights,
            (std::vector<std::string>{"consolidated.safetensors", "original/model.pth"}));
}

TEST_F(PermuteCheckpoint, SaysWhatKilledRunsHaveLeft) {
  std::filesystem::create_directories(folder / "out.123-0.part");
  std::filesystem::create_directories(folder / "other.123-0.part");
  const auto done = permute(tiny_checkpoint("gpt_oss"));
  ASSERT_EQ(done.leftovers.size(), 1U);
  EXPECT_TRUE(done.leftovers.front().ends_with("/out.123-0.part"));
  EXPECT_TRUE(std::filesystem::exists(done.leftovers.front()));
}

TEST_F(PermuteCheckpoint, RecordsOldAndNewNumbersFromTheFirstCheckpointOn) {
  permute(tiny_checkpoint("deepseek_v3"), shuffled_placement(2, 8, 4, 1, 4));
  permute_checkpoint(folder / "out", shuffled_placement(3, 8, 2, 2, 4), folder / "two");
  const ExpertMap map = read_expert_map(folder / "two/evenkeel_placement.json");
  EXPECT_EQ(map.num_ranks, 2);
  ASSERT_EQ(map.new_ids.size(), 3U);
  const auto before = read_tensors(folder / "in");
  const auto after = read_tensors(folder / "two");
  for (const auto& [layer, ids] : map.new_ids) {
    const std::string experts = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    const auto name = [&](std::size_t id) { return experts + std::to_string(id) + ".up_proj.weight"; };
    for (std::size_t old = 0; old < ids.size(); ++old)
      EXPECT_EQ(after.at(name(ids[old].offset())).data, before.at(name(old)).data);
  }
}

}  // namespace
}  // namespace evenkeel
