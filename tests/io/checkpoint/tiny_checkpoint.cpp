#include "tests/io/checkpoint/tiny_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>

#include "tests/io/support.h"

namespace evenkeel {

namespace {

constexpr int experts = 8;

// Bytes that no other place has: made from the tensor's name and their number.
std::string bytes_for(const std::string& name, std::int64_t count) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(name)));
  std::string data;
  for (std::int64_t i = 0; i < count; ++i) data.push_back(static_cast<char>(random()));
  return data;
}

TinyTensor tensor(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape) {
  const std::int64_t size = dtype == "F32" ? 4 : dtype == "BF16" ? 2 : 1;
  const std::int64_t count = std::accumulate(shape.begin(), shape.end(), size, std::multiplies<>());
  return {name, dtype, std::move(shape), bytes_for(name, count)};
}

void add_attention(TinyCheckpoint& checkpoint, const std::string& layer) {
  for (const char* part : {"self_attn.q_proj.weight", "self_attn.o_proj.weight", "input_layernorm.weight"})
    checkpoint.tensors.push_back(tensor(layer + part, "BF16", {3, 5}));
}

void add_dense(TinyCheckpoint& checkpoint, const std::string& layer) {
  for (const char* part : {"gate_proj", "up_proj", "down_proj"})
    checkpoint.tensors.push_back(tensor(layer + "mlp." + part + ".weight", "BF16", {8, 3}));
}

void add_experts(TinyCheckpoint& checkpoint, const std::string& module, std::vector<std::string> parts,
                 const std::string& dtype) {
  for (int expert = 0; expert < experts; ++expert)
    for (const std::string& part : parts) {
      const std::string name = module + "experts." + std::to_string(expert) + "." + part;
      checkpoint.tensors.push_back(tensor(name + ".weight", dtype, {4, 3}));
      if (dtype != "BF16") checkpoint.tensors.push_back(tensor(name + ".weight_scale_inv", "F32", {1, 1}));
    }
}

void add_stacked(TinyCheckpoint& checkpoint, const std::string& module) {
  checkpoint.tensors.push_back(tensor(module + "experts.gate_up_proj", "BF16", {experts, 6, 4}));
  checkpoint.tensors.push_back(tensor(module + "experts.down_proj", "BF16", {experts, 4, 3}));
}

void add_mxfp4(TinyCheckpoint& checkpoint, const std::string& module) {
  for (const std::string part : {"gate_up_proj", "down_proj"}) {
    checkpoint.tensors.push_back(tensor(module + "experts." + part + "_blocks", "U8", {experts, 4, 2, 16}));
    checkpoint.tensors.push_back(tensor(module + "experts." + part + "_scales", "U8", {experts, 4, 2}));
    checkpoint.tensors.push_back(tensor(module + "experts." + part + "_bias", "BF16", {experts, 4}));
  }
}

TinyCheckpoint mixtral(bool stacked) {
  TinyCheckpoint checkpoint{
      R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 2, "num_local_experts": 8})",
      {},
      3};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string module = layer + (stacked ? "mlp." : "block_sparse_moe.");
    add_attention(checkpoint, layer);
    checkpoint.tensors.push_back(tensor(module + "gate.weight", "BF16", {experts, 4}));
    stacked ? add_stacked(checkpoint, module) : add_experts(checkpoint, module, {"w1", "w2", "w3"}, "BF16");
  }
  return checkpoint;
}

// Qwen3-MoE with a dense layer, and OLMoE without.
TinyCheckpoint mlp_experts(const std::string& config, int moe_layers, bool stacked) {
  TinyCheckpoint checkpoint{config, {}, 2};
  for (int l = 0; l < 2; ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    add_attention(checkpoint, layer);
    if (l >= moe_layers) {
      add_dense(checkpoint, layer);
      continue;
    }
    checkpoint.tensors.push_back(tensor(layer + "mlp.gate.weight", "F32", {experts, 4}));
    stacked ? add_stacked(checkpoint, layer + "mlp.")
            : add_experts(checkpoint, layer + "mlp.", {"gate_proj", "up_proj", "down_proj"}, "BF16");
  }
  return checkpoint;
}

TinyCheckpoint deepseek_v3(bool stacked) {
  TinyCheckpoint checkpoint{
      R"({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 3,
          "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_nextn_predict_layers": 1})",
      {},
      4};
  for (int l = 0; l < 4; ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    add_attention(checkpoint, layer);
    if (l == 0) {
      add_dense(checkpoint, layer);
      continue;
    }
    checkpoint.tensors.push_back(tensor(layer + "mlp.gate.weight", "BF16", {experts, 4}));
    checkpoint.tensors.push_back(tensor(layer + "mlp.gate.e_score_correction_bias", "F32", {experts}));
    // As many rows as experts, but they are not experts.
    checkpoint.tensors.push_back(tensor(layer + "mlp.shared_experts.gate_proj.weight", "BF16", {experts, 4}));
    stacked ? add_stacked(checkpoint, layer + "mlp.")
            : add_experts(checkpoint, layer + "mlp.", {"gate_proj", "up_proj", "down_proj"}, "F8_E4M3");
  }
  return checkpoint;
}

TinyCheckpoint gpt_oss(bool mxfp4) {
  TinyCheckpoint checkpoint{
      R"({"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_hidden_layers": 2, "num_local_experts": 8})",
      {},
      1};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    add_attention(checkpoint, layer);
    checkpoint.tensors.push_back(tensor(layer + "mlp.router.weight", "BF16", {experts, 4}));
    checkpoint.tensors.push_back(tensor(layer + "mlp.router.bias", "BF16", {experts}));
    if (mxfp4) {
      add_mxfp4(checkpoint, layer + "mlp.");
      continue;
    }
    add_stacked(checkpoint, layer + "mlp.");
    checkpoint.tensors.push_back(tensor(layer + "mlp.experts.gate_up_proj_bias", "BF16", {experts, 6}));
    checkpoint.tensors.push_back(tensor(layer + "mlp.experts.down_proj_bias", "BF16", {experts, 3}));
  }
  return checkpoint;
}

std::string safetensors_of(std::span<const TinyTensor> tensors) {
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const TinyTensor& each : tensors) {
    header[each.name] = {{"dtype", each.dtype},
                         {"shape", each.shape},
                         {"data_offsets", {data.size(), data.size() + each.data.size()}}};
    data += each.data;
  }
  return safetensors_text(header.dump() + "   ", data);
}

}  // namespace

std::vector<std::string> tiny_families() {
  return {"mixtral", "qwen3_moe", "olmoe", "deepseek_v3", "gpt_oss"};
}

int tiny_moe_layers(const std::string& family) {
  return family == "qwen3_moe" ? 1 : 2;
}

TinyCheckpoint tiny_checkpoint(const std::string& family, bool stacked) {
  TinyCheckpoint checkpoint;
  if (family == "mixtral") checkpoint = mixtral(stacked);
  if (family == "qwen3_moe")
    checkpoint =
        mlp_experts(R"({"model_type": "qwen3_moe", "num_hidden_layers": 2, "num_experts": 8})", 1, stacked);
  if (family == "olmoe")
    checkpoint =
        mlp_experts(R"({"model_type": "olmoe", "num_hidden_layers": 2, "num_experts": 8})", 2, stacked);
  if (family == "deepseek_v3") checkpoint = deepseek_v3(stacked);
  if (family == "gpt_oss") checkpoint = gpt_oss(stacked);
  if (checkpoint.tensors.empty()) throw std::invalid_argument("no family " + family);
  checkpoint.tensors.push_back(tensor("model.embed_tokens.weight", "BF16", {11, 4}));
  checkpoint.tensors.push_back(tensor("lm_head.weight", "BF16", {11, 4}));
  return checkpoint;
}

void write_checkpoint(const TinyCheckpoint& checkpoint, const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_text(folder + "/config.json", checkpoint.config);
  const std::span<const TinyTensor> all = checkpoint.tensors;
  if (checkpoint.num_files == 1) return write_text(folder + "/model.safetensors", safetensors_of(all));
  nlohmann::ordered_json index{{"metadata", {{"total_size", 12345}}},
                               {"weight_map", nlohmann::ordered_json::object()}};
  const auto files = static_cast<std::size_t>(checkpoint.num_files);
  for (std::size_t file = 0; file < files; ++file) {
    const std::string name = "model-0000" + std::to_string(file + 1) + ".safetensors";
    const std::size_t begin = file * all.size() / files;
    const auto mine = all.subspan(begin, (file + 1) * all.size() / files - begin);
    write_text(folder + "/" + name, safetensors_of(mine));
    for (const TinyTensor& each : mine) index["weight_map"][each.name] = name;
  }
  write_text(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
}

std::string read_header_bytes(const std::string& path) {
  const std::string text = read_text(path);
  std::size_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text.at(i));
  return text.substr(0, 8 + length);
}

std::map<std::string, ReadTensor> read_tensors(const std::string& folder) {
  std::map<std::string, ReadTensor> tensors;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string text = read_text(entry.path());
    const std::string head = read_header_bytes(entry.path());
    const nlohmann::json header = nlohmann::json::parse(head.substr(8));
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") continue;
      const auto begin = value["data_offsets"][0].get<std::size_t>();
      const auto end = value["data_offsets"][1].get<std::size_t>();
      tensors[name] = {value["dtype"], value["shape"], text.substr(head.size() + begin, end - begin)};
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
