// Checkpoints that cannot be permuted: the error messages, and that no files are left behind.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>

#include "evenkeel/io/permute_checkpoint.h"
#include "tests/io/checkpoint/tiny_checkpoint.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

using Change = std::function<void(TinyCheckpoint&)>;
using Message = testing::Matcher<std::string>;

// A checkpoint with a defect.
class Refusal : public InFolder {
 protected:
  void write(const TinyCheckpoint& checkpoint) { write_checkpoint(checkpoint, in()); }
  std::string in() const { return folder / "in"; }
  std::string out() const { return folder / "out"; }

  // Returns the message without the folder's name. The attempt must leave no new files.
  template <class Expected>
  std::string refused(const Placement& placement = shuffled_placement(2, 8, 4, 1)) {
    const auto before = folder.names();
    std::string message = message_of<Expected>([&] { permute_checkpoint(in(), placement, out()); });
    EXPECT_EQ(folder.names(), before);
    const std::string path = folder / "";
    for (std::size_t at = message.find(path); at != std::string::npos; at = message.find(path))
      message.erase(at, path.size());
    return message;
  }

  // Applies each change to an OLMoE checkpoint and expects its message.
  template <class Expected>
  void expect_refused(const std::vector<std::pair<Change, Message>>& all) {
    for (const auto& [change, message] : all) {
      TinyCheckpoint checkpoint = tiny_checkpoint("olmoe");
      change(checkpoint);
      write(checkpoint);
      EXPECT_THAT(refused<Expected>(), message);
    }
  }
  template <class Expected>
  void expect_configs_refused(const std::vector<std::pair<std::string, Message>>& all) {
    for (const auto& [config, message] : all) {
      SCOPED_TRACE(config);
      expect_refused<Expected>({{[&](TinyCheckpoint& checkpoint) { checkpoint.config = config; }, message}});
    }
  }
  // Expects that a checkpoint with this config is permuted and the config is copied.
  void expect_permuted(const std::string& config) {
    TinyCheckpoint checkpoint = tiny_checkpoint("olmoe");
    checkpoint.config = config;
    write(checkpoint);
    EXPECT_NO_THROW(permute_checkpoint(in(), shuffled_placement(2, 8, 4, 1), out())) << config;
    EXPECT_EQ(read_text(out() + "/config.json"), config);
    std::filesystem::remove_all(out());
  }
};

Change without(const std::string& part) {
  return [=](TinyCheckpoint& checkpoint) {
    std::erase_if(checkpoint.tensors,
                  [&](const FileTensor& tensor) { return tensor.name.find(part) != std::string::npos; });
  };
}

FileTensor& find(TinyCheckpoint& checkpoint, const std::string& name) {
  return *std::ranges::find(checkpoint.tensors, name, &FileTensor::name);
}

Change renamed(const std::string& from, const std::string& to) {
  return [=](TinyCheckpoint& checkpoint) { find(checkpoint, from).name = to; };
}

TEST_F(Refusal, OfAFamilySaysWhyOrListsThoseThatAreKnown) {
  const auto of_type = [](const std::string& type) {
    return R"({"num_hidden_layers": 2, "num_experts": 8, "architectures": ["X"], "model_type": ")" + type +
           "\"}";
  };
  expect_configs_refused<Unsupported>({
      {of_type("dbrx"),
       "in/config.json: the experts of dbrx cannot be permuted: the names of their tensors are not known"},
      {of_type("ernie4_5_vl_moe"),
       HasSubstr(
           "of ernie4_5_vl_moe cannot be permuted: a layer has experts for text and others for images")},
      {of_type("longcat_flash"),
       HasSubstr(
           "of longcat_flash cannot be permuted: its routers also choose among experts without weights")},
      {of_type("llama"), AllOf(StartsWith("in/config.json: cannot permute the experts of model_type 'llama' "
                                          "(architectures: X); supported: mixtral, "),
                               EndsWith("zaya"))},
  });
}

TEST_F(Refusal, OfAConfigNamesTheKey) {
  const std::string deepseek =
      R"({"model_type": "deepseek_v3", "num_hidden_layers": 2, "n_routed_experts": 8)";
  expect_configs_refused<ParseError>({
      {"[]", "in/config.json: is not a JSON object"},
      {R"({"model_type": "olmoe", "num_experts": 8})", "in/config.json: num_hidden_layers: is missing"},
      {R"({"model_type": "olmoe", "num_hidden_layers": 2})", "in/config.json: num_experts: is missing"},
      {R"({"model_type": "olmoe", "num_hidden_layers": 2, "num_experts": 0})",
       "in/config.json: num_experts: is 0: no layer of this model has experts to place"},
      {R"({"model_type": "olmoe", "num_hidden_layers": 2, "num_experts": 8, "num_local_experts": 4})",
       "in/config.json: num_local_experts: is 4, but num_experts is 8; both must be the same number"},
      {R"({"model_type": 3})", "in/config.json: model_type: is a JSON number, not a text"},
      {R"({"architectures": "x"})", "in/config.json: architectures: is a JSON string, not a list"},
      {deepseek + ", \"n_group\": 3}",
       "in/config.json: n_group: 8 experts cannot be divided evenly into 3 groups"},
      {deepseek + "}",
       "in/config.json: n_group: is missing; deepseek_v3 chooses groups of experts first, so their number "
       "must be given (1 if there are none)"},
  });
  std::filesystem::remove(in() + "/config.json");
  EXPECT_EQ(refused<ParseError>(), "in/config.json: cannot be opened: No such file or directory");
}

TEST_F(Refusal, OfAConfigForOtherTensorsNamesOne) {
  const std::pair<const char*, const char*> others[] = {
      {"olmoe",
       "in/model-00001.safetensors: model.layers.0.mlp.experts.4.down_proj.weight: expert 4 is outside 0..3, "
       "the experts of config.json"},
      {"gpt_oss",
       "in/model.safetensors: model.layers.0.mlp.experts.down_proj: shape [8, 4, 3] of 192 bytes does not "
       "have a row for each of the 4 experts of config.json"}};
  for (const auto& [family, message] : others) {
    std::filesystem::remove_all(in());
    TinyCheckpoint checkpoint = tiny_checkpoint(family);
    checkpoint.config = std::regex_replace(checkpoint.config, std::regex("8"), "4");
    write(checkpoint);
    EXPECT_EQ(refused<ParseError>(), message);
  }
}

// A config whose quantization_config is `what`.
std::string quantized(const std::string& what) {
  return R"({"model_type": "olmoe", "num_hidden_layers": 2, "num_experts": 8, "quantization_config": )" +
         what + "}";
}

std::string ignored(const std::string& list) {
  return quantized("{\"ignore\": [" + list + "]}");
}

// Entries of a JSON list or object, one for each expert in [0, end), with `behind` after each name.
std::string entries(int end, const std::string& behind) {
  std::string text;
  for (int expert = 0; expert < end; ++expert)
    text += std::string(expert > 0 ? ", " : "") + "\"model.layers.1.mlp.experts." + std::to_string(expert) +
            ".up_proj\"" + behind;
  return text;
}

std::string speaks_of(const std::string& name, const std::string& why) {
  return "in/config.json: '" + name + "' " + why;
}

TEST_F(Refusal, OfAConfigThatSpeaksOfSomeExpertsQuotesOneAndSaysWhoIsMissing) {
  const std::string module = "model.layers.1.mlp.experts.";
  const std::string one = "names one expert, but expert 0 has no such entry; name all 8 experts, or none";
  expect_configs_refused<Unsupported>({
      {ignored(R"("lm_head", "model.layers.1.mlp.experts.3.up_proj")"), speaks_of(module + "3.up_proj", one)},
      {ignored(entries(7, "")),
       speaks_of(module + "0.up_proj",
                 "names one expert, but expert 7 has no such entry; name all 8 experts, or none")},
      {ignored(entries(9, "")),
       speaks_of(module + "8.up_proj", "names expert 8, but the model has experts 0..7")},
      {quantized("{\"bits\": {" + entries(7, ": 8") + ", \"" + module + "7.up_proj\": 4}}"),
       speaks_of(module + "7.up_proj",
                 "names one expert, and its value 4 differs from another expert's 8; give all experts the "
                 "same value")},
      {quantized(R"({"only": "experts.5.w1"})"), speaks_of("experts.5.w1", one)},
      // The list has all experts of layer 1, but only one expert of layer 0.
      {ignored("\"model.layers.0.mlp.experts.2.up_proj\", " + entries(8, "")),
       speaks_of("model.layers.0.mlp.experts.2.up_proj", one)},
  });
}

TEST_F(Refusal, OfSomeExpertsEndsWhereAllAreNamedAlike) {
  expect_permuted(ignored(entries(8, "") + ", \"lm_head\""));
  expect_permuted(quantized("{\"bits\": {" + entries(8, ": {\"w\": 4}") + ", \"other\": 2}}"));
}

TEST_F(Refusal, OfPatternsThatMayPickSomeExpertsNamesThePattern) {
  const auto config = [](const std::string& pattern) { return ignored(R"("lm_head", ")" + pattern + "\""); };
  for (const char* pattern : {R"(re:.*mlp\\.experts\\.[0-3]\\..*)", R"(re:.*experts\\.(0|1)\\..*)",
                              "*experts.[0-3]*", R"(re:.*experts[.]?[3]\\.up_proj)", R"(re:.*experts.{1}3)"})
    expect_configs_refused<Unsupported>(
        {{config(pattern), HasSubstr("may match only some experts of a layer")}});
  expect_configs_refused<Unsupported>({{config(R"(re:.*mlp\\.experts\\.3\\..*)"),
                                        HasSubstr("names one expert, but expert 0 has no such entry")}});
  for (const char* pattern :
       {R"(re:.*mlp\\.experts\\.\\d+\\.up_proj)", R"(re:.*experts.*)", "*.experts.*",
        "model.layers.1.mlp.experts", R"(re:.*shared_experts\\.up_proj$)",
        R"(re:model\\.layers\\.(0|1)\\.mlp\\.experts\\.[0-9]+\\.)", "experts.gate_up_proj"})
    expect_permuted(config(pattern));
}

TEST_F(Refusal, OfAFileThatSaysOtherThingsOfSomeExpertsNamesIt) {
  write(tiny_checkpoint("olmoe"));
  const std::string description = in() + "/quant_model_description.json";
  write_text(description, "{" + entries(8, ": \"W8A8\"") + "}");
  EXPECT_NO_THROW(permute_checkpoint(in(), shuffled_placement(2, 8, 4, 1), out()));
  std::filesystem::remove_all(out());
  write_text(description,
             "{" + entries(7, ": \"W8A8\"") + ", \"model.layers.1.mlp.experts.7.up_proj\": \"FLOAT\"}");
  EXPECT_EQ(refused<Unsupported>(),
            "in/quant_model_description.json: 'model.layers.1.mlp.experts.7.up_proj' names one expert, and "
            "its value \"FLOAT\" differs from another expert's \"W8A8\"; give all experts the same value");
}

TEST_F(Refusal, OfAFolderThatIsNoCheckpointSaysWhatIsMissing) {
  EXPECT_EQ(refused<ParseError>(), "in: is not a folder");
  std::filesystem::create_directories(in());
  write_text(in() + "/config.json", tiny_checkpoint("olmoe").config);
  EXPECT_EQ(refused<ParseError>(),
            "in: has neither a file that ends in .safetensors.index.json nor model.safetensors; a "
            "safetensors checkpoint is needed");
  write_text(in() + "/model.safetensors", "");
  write_text(in() + "/model.safetensors.index.json", "");
  EXPECT_EQ(
      refused<ParseError>(),
      "in: has both model.safetensors and model.safetensors.index.json; keep only the one that is the model");
  write_text(in() + "/other.safetensors.index.json", "");
  std::filesystem::remove(in() + "/model.safetensors");
  EXPECT_EQ(refused<ParseError>(),
            "in: has both model.safetensors.index.json and other.safetensors.index.json; keep only the one "
            "that is the model");
}

TEST_F(Refusal, OfAnIndexThatDoesNotFitNamesTheTensor) {
  write(tiny_checkpoint("olmoe"));
  const std::string path = in() + "/model.safetensors.index.json";
  const std::string index = read_text(path);
  const std::string where = "in/model.safetensors.index.json: ", map = R"("weight_map": \{)",
                    lm = "weight_map.lm_head.weight: ";
  const struct {
    std::string from, to, message;
  } changes[] = {
      {"\"weight_map\"", "\"other\"", where + "weight_map: is missing"},
      {R"("lm_head.weight": "model-00002)", R"("lm_head.weight": "model-00001)",
       where + lm + "is model-00001.safetensors, but model-00002.safetensors has this tensor"},
      {R"("lm_head.weight")", R"("lm_foot.weight")",
       where + lm + "is missing or names another file, but model-00002.safetensors has this tensor"},
      {map, R"("weight_map": {"x": "model-00001.safetensors",)",
       where + "weight_map.x: names model-00001.safetensors, which has no such tensor"},
      {map, R"("weight_map": {"x": "../model-00001.safetensors",)",
       where + "weight_map.x: \"../model-00001.safetensors\" is not the name of a file in the same folder"},
      {map, R"("weight_map": {"x": "gone.safetensors",)",
       "in/gone.safetensors: cannot be opened: No such file or directory"},
  };
  for (const auto& [from, to, message] : changes) {
    write_text(path,
               std::regex_replace(index, std::regex(from), to, std::regex_constants::format_first_only));
    EXPECT_EQ(refused<ParseError>(), message);
  }
}

TEST_F(Refusal, OfAShardThatWasCutShortIsAnError) {
  write(tiny_checkpoint("olmoe"));
  const std::string path = in() + "/model-00002.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THAT(refused<ParseError>(), HasSubstr("is not a range of the"));
}

TEST_F(Refusal, OfTensorsThatAreNotKnownNamesThem) {
  for (const std::string name :
       {"model.layers.0.mlp.experts.bias", "model.layers.0.mlp.gate.extra", "model.layers.0.mlp.other",
        "model.layers.0.mlp.experts.01.up_proj.weight", "model.layers.0.mlp.shared_experts.up.weight",
        "model.layers.0.attention.experts.0.weight", "model.router.weight", "model.layers.0.mlp.experts",
        "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.router.weight",
        "model.layers.0.mlp.expert_bias", "model.layers.0.moe.bias", "mtp.layers.0.mlp.gate.tid2eid",
        "expert_scale", "model.layers.0.mlp.experts.up_proj.g_idx"})
    expect_refused<Unsupported>(
        {{[&](TinyCheckpoint& checkpoint) {
            checkpoint.tensors.push_back({name, "U8", {8}, "12345678"});
          },
          "in: tensor " + name + " is not known for olmoe; it may depend on the order of experts"}});
}

TEST_F(Refusal, OfExpertsAndRoutersThatAreNotAllThereOrAlikeNamesThem) {
  const std::string up = "model.layers.1.mlp.experts.5.up_proj.weight",
                    gate = "model.layers.1.mlp.gate.weight";
  expect_refused<ParseError>({
      {without(up), "in: layer 1: expert 5 has no up_proj.weight, which other experts have"},
      {renamed(up, "model.layers.1.mlp.experts.8.up_proj.weight"),
       "in/model-00002.safetensors: model.layers.1.mlp.experts.8.up_proj.weight: expert 8 is outside 0..7, "
       "the experts of config.json"},
      {without(gate), "in: layer 1: has experts, but no gate.weight to choose them"},
      {without("model.layers.1.mlp.ex"), "in: layer 1: has a gate.weight, but no experts"},
      {without(".mlp."), "in: has no tensor named like the experts of olmoe"},
      {renamed(gate, "layers.1.mlp.gate.weight"),
       "in: model.layers.0: has experts, and so has layers.1; all layers with experts must have names with "
       "one prefix"},
  });
  const auto in_other_type = [&](TinyCheckpoint& checkpoint) {
    find(checkpoint, up).dtype = "F8_E4M3";
    find(checkpoint, up).data.resize(12);
  };
  expect_refused<Unsupported>({{in_other_type,
                                "in: model.layers.1.mlp.experts.0.up_proj.weight is BF16 [4, 3] and "
                                "model.layers.1.mlp.experts.5.up_proj.weight is F8_E4M3 [4, 3]: experts of a "
                                "layer must be of one type and shape to change places"}});
}

TEST_F(Refusal, OfAPlacementThatDoesNotFitSaysWhichWould) {
  const LayerPlacement fine = LayerPlacement::contiguous(8, 2);
  const struct {
    const char* family;
    Placement placement;
    const char* message;
  } unfit[] = {
      {"olmoe", shuffled_placement(3, 8, 4, 1),
       "placement: has 3 layers, but the checkpoint has 2 MoE layers (0-1); allowed: one with 2 layers; "
       "leave out dense layers"},
      {"qwen3_moe", shuffled_placement(2, 8, 4, 1),
       "placement: has 2 layers, but the checkpoint has 1 MoE layers (0); allowed: one with 1 layers; leave "
       "out dense layers"},
      {"deepseek_v3", shuffled_placement(4, 8, 4, 1, 4),
       "placement: has 4 layers, but the checkpoint has 2 MoE layers (1-2) and 1 for multi-token prediction "
       "(3); allowed: one with 2 layers, or 3; leave out dense layers"},
      {"olmoe", shuffled_placement(2, 12, 4, 1),
       "placement: is for 12 experts; allowed: one for the 8 experts of the checkpoint"},
      {"olmoe", Placement({fine, LayerPlacement({{0}, {1, 0}, {0}, {0}, {1}, {1}, {1}, {1}}, 2)}),
       "placement: layer 1: expert 1 has copies on ranks 1, 0, but experts in contiguous order have one home "
       "each; allowed: a placement without redundant experts"},
      {"olmoe", Placement({fine, LayerPlacement({{0}, {1}, {0}, {0}, {1}, {1}, {1}, {1}}, 2)}),
       "placement: layer 1: rank 0 is home to 3 experts, but contiguous expert parallelism gives each rank "
       "4; "
       "allowed: equally many experts on every rank (--sizes equal)"},
  };
  for (const auto& [family, placement, message] : unfit) {
    std::filesystem::remove_all(in());
    write(tiny_checkpoint(family));
    EXPECT_EQ(refused<InvalidArgument>(placement), message);
  }
}

TEST_F(Refusal, OfGroupsTakenApartNamesLayerExpertsAndGroups) {
  write(tiny_checkpoint("deepseek_v3"));
  const Placement apart = placement_by_ids({{0, 1, 2, 3, 4, 5, 6, 7}, {0, 2, 1, 3, 4, 5, 6, 7}});
  EXPECT_EQ(refused<Infeasible>(apart),
            "layer 1 (layer 2 of the model): the placement would put expert 0 of group 0 and expert 2 of "
            "group 1 into one group (new ids 0..1); the model first chooses 2 of 4 groups of 2 experts, so "
            "its output would change; keep the experts of a group together: whole groups on a "
            "rank, or each group on ranks of its own");
}

TEST_F(Refusal, OfGroupsEndsWhereAllAreChosen) {
  TinyCheckpoint checkpoint = tiny_checkpoint("deepseek_v3");
  checkpoint.config =
      std::regex_replace(checkpoint.config, std::regex(R"("topk_group": 2)"), R"("topk_group": 4)");
  write(checkpoint);
  EXPECT_NO_THROW(permute_checkpoint(in(), shuffled_placement(2, 8, 4, 1), out()));
}

TEST_F(Refusal, OfAPlaceThatIsTakenLeavesIt) {
  write(tiny_checkpoint("olmoe"));
  std::filesystem::create_directories(out());
  write_text(out() + "/mine", "mine");
  EXPECT_EQ(refused<InvalidArgument>(),
            "output: out is not empty; allowed: a folder that is empty or not there yet");
  EXPECT_EQ(read_text(out() + "/mine"), "mine");
  std::filesystem::remove_all(out());
  write_text(out(), "mine");
  EXPECT_EQ(refused<InvalidArgument>(),
            "output: out exists and is not a folder; allowed: a folder that is empty or not there yet");
  std::filesystem::remove(out());
  std::filesystem::create_directories(out());
  EXPECT_NO_THROW(permute_checkpoint(in(), shuffled_placement(2, 8, 4, 1), out() + "/"));
  EXPECT_TRUE(std::filesystem::exists(out() + "/config.json"));
}

TEST_F(Refusal, OfAPlaceInTheCheckpointOrNowhereLeavesNothing) {
  write(tiny_checkpoint("olmoe"));
  const Placement placement = shuffled_placement(2, 8, 4, 1);
  const auto inside = HasSubstr("is the input or inside it; allowed: a folder elsewhere");
  evenkeel::expect_refused<InvalidArgument>(
      [&](const std::string& place) { permute_checkpoint(in(), placement, place); },
      {{in(), inside},
       {in() + "/sub", inside},
       {in() + "/../in/sub", inside},
       {folder / "no/such", HasSubstr("no/such cannot be made: No such file or directory")}});
  EXPECT_EQ(folder.names(), std::vector<std::string>{"in"});
  EXPECT_FALSE(std::filesystem::exists(in() + "/sub"));
}

TEST_F(Refusal, OfWhatIsNoFileNamesIt) {
  write(tiny_checkpoint("olmoe"));
  ASSERT_EQ(::mkfifo((in() + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(refused<Unsupported>(),
            "in/pipe: is neither a file, a folder nor a link to a file, and cannot be copied");
}

TEST_F(Refusal, OfAMapThatIsNotForThisCheckpointNamesIt) {
  write(tiny_checkpoint("olmoe"));
  write_text(
      in() + "/evenkeel_placement.json",
      R"({"format": "evenkeel.expert_map.v1", "num_experts": 4, "num_ranks": 2, "model_layers": [], "old_to_new": []})");
  EXPECT_EQ(refused<ParseError>(), "in/evenkeel_placement.json: num_experts: is 4, but config.json says 8");
}

TEST_F(Refusal, ByTheCallerHalfWayLeavesNothing) {
  write(tiny_checkpoint("deepseek_v3"));
  struct Enough {};
  int calls = 0;
  const PermuteOptions options{.progress = [&](std::int64_t done, std::int64_t of) {
    EXPECT_LE(done, of);
    EXPECT_FALSE(std::filesystem::exists(out()));
    if (++calls == 3) throw Enough{};
  }};
  EXPECT_THROW(permute_checkpoint(in(), shuffled_placement(2, 8, 4, 1, 4), out(), options), Enough);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"in"});
  EXPECT_NO_THROW(permute_checkpoint(in(), shuffled_placement(2, 8, 4, 1, 4), out()));
}

}  // namespace
}  // namespace evenkeel
