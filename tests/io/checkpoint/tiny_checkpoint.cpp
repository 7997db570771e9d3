#include "tests/io/checkpoint/tiny_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>

namespace evenkeel {

namespace {

constexpr int experts = 8;

// Unique bytes, made from the tensor's name and the position of each byte.
std::string bytes_for(const std::string& name, std::int64_t count) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(name)));
  std::string data;
  for (std::int64_t i = 0; i < count; ++i) data.push_back(static_cast<char>(random()));
  return data;
}

void add(TinyCheckpoint& checkpoint, const std::string& name, const std::string& dtype,
         std::vector<std::int64_t> shape) {
  const std::int64_t size = dtype == "F32" ? 4 : dtype == "BF16" ? 2 : 1;
  const std::int64_t count = std::accumulate(shape.begin(), shape.end(), size, std::multiplies<>());
  checkpoint.tensors.push_back({name, dtype, std::move(shape), bytes_for(name, count)});
}

struct Family {
  std::string name;
  std::string more_config;
  int num_files;
  int num_hidden_layers;
  int dense_layer;  // -1: none
  std::string router = "gate.weight";
  std::string router_dtype = "BF16";
};

const std::vector<Family> families = {
    {"mixtral", R"("num_local_experts": 8, "architectures": ["MixtralForCausalLM"])", 3, 2, -1},
    {"qwen3_moe", R"("num_experts": 8)", 2, 2, 1, "gate.weight", "F32"},
    {"olmoe", R"("num_experts": 8)", 2, 2, -1, "gate.weight", "F32"},
    {"deepseek_v3", R"("n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_nextn_predict_layers": 1)",
     4, 3, 0},
    {"gpt_oss", R"("num_local_experts": 8, "architectures": ["GptOssForCausalLM"])", 1, 2, -1,
     "router.weight"},
};

const std::vector<std::string> projections = {"gate_proj", "up_proj", "down_proj"};

void add_experts(TinyCheckpoint& checkpoint, const std::string& module, const std::string& family) {
  const auto parts = family == "mixtral" ? std::vector<std::string>{"w1", "w2", "w3"} : projections;
  for (int expert = 0; expert < experts; ++expert)
    for (const std::string& part : parts) {
      const std::string name = module + "experts." + std::to_string(expert) + "." + part + ".weight";
      add(checkpoint, name, family == "deepseek_v3" ? "F8_E4M3" : "BF16", {4, 3});
      if (family == "deepseek_v3") add(checkpoint, name + "_scale_inv", "F32", {1, 1});
    }
}

void add_stacked(TinyCheckpoint& checkpoint, const std::string& module) {
  add(checkpoint, module + "experts.gate_up_proj", "BF16", {experts, 6, 4});
  add(checkpoint, module + "experts.down_proj", "BF16", {experts, 4, 3});
}

void add_mxfp4(TinyCheckpoint& checkpoint, const std::string& module) {
  for (const std::string part : {"gate_up_proj", "down_proj"}) {
    add(checkpoint, module + "experts." + part + "_blocks", "U8", {experts, 4, 2, 16});
    add(checkpoint, module + "experts." + part + "_scales", "U8", {experts, 4, 2});
    add(checkpoint, module + "experts." + part + "_bias", "BF16", {experts, 4});
  }
}

void add_gpt_oss(TinyCheckpoint& checkpoint, const std::string& module, bool mxfp4) {
  add(checkpoint, module + "router.bias", "BF16", {experts});
  if (mxfp4) return add_mxfp4(checkpoint, module);
  add_stacked(checkpoint, module);
  add(checkpoint, module + "experts.gate_up_proj_bias", "BF16", {experts, 6});
  add(checkpoint, module + "experts.down_proj_bias", "BF16", {experts, 3});
}

void add_moe(TinyCheckpoint& checkpoint, const std::string& layer, const Family& family, bool stacked) {
  const std::string module = layer + (family.name == "mixtral" && !stacked ? "block_sparse_moe." : "mlp.");
  add(checkpoint, module + family.router, family.router_dtype, {experts, 4});
  if (family.name == "gpt_oss") return add_gpt_oss(checkpoint, module, stacked);
  if (family.name == "deepseek_v3") {
    add(checkpoint, module + "gate.e_score_correction_bias", "F32", {experts});
    // This tensor has as many rows as there are experts, but the rows are not experts.
    add(checkpoint, module + "shared_experts.gate_proj.weight", "BF16", {experts, 4});
  }
  stacked ? add_stacked(checkpoint, module) : add_experts(checkpoint, module, family.name);
}

void add_layer(TinyCheckpoint& checkpoint, int number, const Family& family, bool stacked) {
  const std::string layer = "model.layers." + std::to_string(number) + ".";
  for (const char* part : {"self_attn.q_proj", "self_attn.o_proj", "input_layernorm"})
    add(checkpoint, layer + part + ".weight", "BF16", {3, 5});
  if (number != family.dense_layer) return add_moe(checkpoint, layer, family, stacked);
  for (const std::string& part : projections)
    add(checkpoint, layer + "mlp." + part + ".weight", "BF16", {8, 3});
}

}  // namespace

std::vector<std::string> tiny_families() {
  std::vector<std::string> names;
  for (const Family& family : families) names.push_back(family.name);
  return names;
}

int tiny_moe_layers(const std::string& family) {
  return family == "qwen3_moe" ? 1 : 2;
}

TinyCheckpoint tiny_checkpoint(const std::string& name, bool stacked) {
  const auto family = std::ranges::find(families, name, &Family::name);
  if (family == families.end()) throw std::invalid_argument("no family " + name);
  const std::string hidden = std::to_string(family->num_hidden_layers);
  TinyCheckpoint checkpoint{"{\"model_type\": \"" + name + "\", \"num_hidden_layers\": " + hidden + ", " +
                                family->more_config + "}",
                            {},
                            family->num_files};
  // DeepSeek-V3's multi-token prediction layer follows the hidden layers.
  const int num_layers = family->num_hidden_layers + (name == "deepseek_v3" ? 1 : 0);
  for (int layer = 0; layer < num_layers; ++layer) add_layer(checkpoint, layer, *family, stacked);
  add(checkpoint, "model.embed_tokens.weight", "BF16", {11, 4});
  add(checkpoint, "lm_head.weight", "BF16", {11, 4});
  return checkpoint;
}

void write_checkpoint(const TinyCheckpoint& checkpoint, const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_text(folder + "/config.json", checkpoint.config);
  const std::span<const FileTensor> all = checkpoint.tensors;
  if (checkpoint.num_files == 1)
    return write_text(folder + "/model.safetensors", safetensors_of(all, {{"format", "pt"}}));
  nlohmann::ordered_json index{{"metadata", {{"total_size", 12345}}},
                               {"weight_map", nlohmann::ordered_json::object()}};
  const auto files = static_cast<std::size_t>(checkpoint.num_files);
  for (std::size_t file = 0; file < files; ++file) {
    const std::string name = "model-0000" + std::to_string(file + 1) + ".safetensors";
    const std::size_t begin = file * all.size() / files;
    const auto mine = all.subspan(begin, (file + 1) * all.size() / files - begin);
    write_text(folder + "/" + name, safetensors_of(mine, {{"format", "pt"}}));
    for (const FileTensor& each : mine) index["weight_map"][each.name] = name;
  }
  write_text(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
}

std::string read_header_bytes(const std::string& path) {
  const std::string text = read_text(path);
  std::size_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text.at(i));
  return text.substr(0, 8 + length);
}

std::map<std::string, FileTensor> read_tensors(const std::string& folder) {
  std::map<std::string, FileTensor> tensors;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string text = read_text(entry.path());
    const std::string head = read_header_bytes(entry.path());
    const nlohmann::json header = nlohmann::json::parse(head.substr(8));
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") continue;
      const auto begin = value["data_offsets"][0].get<std::size_t>();
      const auto end = value["data_offsets"][1].get<std::size_t>();
      tensors[name] = {name, value["dtype"], value["shape"], text.substr(head.size() + begin, end - begin)};
    }
  }
  return tensors;
}

Placement shuffled_placement(int layers, int num_experts, int ranks, unsigned seed, int groups) {
  std::mt19937 random(seed);
  std::vector<std::vector<int>> ids;
  for (int l = 0; l < layers; ++l) {
    const int size = num_experts / groups;
    std::vector<int> group_order(static_cast<std::size_t>(groups));
    std::iota(group_order.begin(), group_order.end(), 0);
    std::ranges::shuffle(group_order, random);
    std::vector<int> order;
    for (const int group : group_order) {
      std::vector<int> inside(static_cast<std::size_t>(size));
      std::iota(inside.begin(), inside.end(), group * size);
      std::ranges::shuffle(inside, random);
      order.insert(order.end(), inside.begin(), inside.end());
    }
    ids.emplace_back(order.size());
    for (std::size_t place = 0; place < order.size(); ++place)
      ids.back()[static_cast<std::size_t>(order[place])] = static_cast<int>(place);
  }
  return placement_by_ids(ids, num_experts / ranks);
}

Placement placement_by_ids(const std::vector<std::vector<int>>& ids, int on_rank) {
  std::vector<LayerPlacement> layers;
  for (const auto& of_layer : ids) {
    std::vector<std::vector<int>> homes;
    for (const int id : of_layer) homes.push_back({id / on_rank});
    layers.emplace_back(homes, static_cast<int>(of_layer.size()) / on_rank);
  }
  return Placement(std::move(layers));
}

}  // namespace evenkeel
