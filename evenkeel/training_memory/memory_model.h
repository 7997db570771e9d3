// The memory of one device that trains a Mixture-of-Experts model: MemFine's memory model, with every row of
// its Table 2, and the terms that the MemFine paper leaves out.
//
// Problem    Given are a model, the way it is spread over devices, and the number of rows that a device's
//            experts receive. For every pipeline stage, find the bytes of weights, gradients and optimizer
//            states (static), and the bytes that forward keeps for backward (active).
// Layout     A stage has t c d devices. Its experts are divided into e groups, and each expert is cut into
//            e_t slices of its width. The resulting e e_t parts are dealt to the devices in turn. t c d is a
//            multiple of e e_t, so that the devices together hold only whole copies of the experts.
// Static     Eq. 1: (D_para + D_grad + 4 D_opt) / t times the weights of the stage's layers. The paper does
//            not say how experts, dense layers and embeddings count. Here a device has ceil(E / e) experts of
//            every MoE layer, 1 / e_t of each. The first stage has the embedding, and the last stage has the
//            final norm and the head. With t = 1, as in the paper's runs, the result is the paper's.
// Active     Eq. 2: (m_g / (t c)) D_t b (s (5 h + a h_d + 2 k_a h_d + e_n) + s' (2 h + 2 g_e / e_t)), one
//            item for each row of Table 2. As in the paper, it counts one MoE layer. With chunks, s' is
//            replaced by the rows of a chunk, ceil(s' / chunks).
// m_g        v p + p - 2 r - 1 on stage r, and 1 with full recomputation.
// More       ExtraTerms. By default all are off, and every number is the paper's. The command `evenkeel
//            memory` turns on the terms that every framework has. kept_tensors replaces Table 2 by the
//            tensors that Megatron-Core keeps. docs/memory.md compares the results with published
//            measurements.
// Source     MemFine (arXiv 2511.21431v4), section 3. docs/memory.md says which of the numbers printed in the
//            paper this model reproduces.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/model/model_description.h"

namespace evenkeel {

// The degrees of parallelism t, p, e, d, v (pipeline pieces per device), c and e_t: the number of devices
// over which each dimension is spread. Dense weights and tokens are spread over t, c and d. The same devices
// hold the experts, spread over e and e_t.
struct Parallelism {
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  std::int64_t expert = 1;
  std::int64_t data = 1;
  std::int64_t virtual_stages = 1;
  std::int64_t context = 1;
  std::int64_t expert_tensor = 1;  // number of devices that share an expert, each with a slice of its width

  std::int64_t expert_parts() const { return expert * expert_tensor; }
  std::int64_t stage_devices() const { return tensor * context * data; }
  std::int64_t devices() const { return stage_devices() * pipeline; }
  // The smallest d with which the devices of a stage hold only whole copies of its experts.
  std::int64_t least_data() const;

  friend bool operator==(const Parallelism&, const Parallelism&) = default;
};

inline constexpr std::int64_t most_degree = std::int64_t{1} << 20;
inline constexpr std::int64_t most_devices = std::int64_t{1} << 40;

struct BytesPerNumber {
  std::int64_t activation = 2;  // D_t
  std::int64_t weight = 2;      // D_para
  std::int64_t gradient = 4;    // D_grad
  std::int64_t optimizer = 12;  // 4 D_opt: all states of a weight, namely Adam's two and an f32 copy
};

// Terms that frameworks have and the paper leaves out. docs/memory.md gives the source of each.
struct ExtraTerms {
  // Active. Counts a layer's tensors as frameworks with fused kernels keep them, instead of the rows of Table
  // 2.
  bool kept_tensors = false;
  // Active, with kept_tensors. The gradients of one layer's tensors, which exist while backward is in that
  // layer.
  bool layer_gradients = false;
  // Active, with kept_tensors. The experts' outputs, if router weights scale them outside the experts'
  // kernels.
  bool expert_outputs = false;
  // Static. Every tensor-parallel device has whole norms, routers and low-rank parts of latent attention.
  bool replicated = false;
  // Static. A weight's optimizer states are spread over the devices that hold the same weight. There are d c
  // of these devices, or t c d / (e e_t) for an expert's weight.
  bool sharded_optimizer = false;
  // Static: weights and gradients are spread in the same way. Active: weights are gathered to compute layers.
  bool fully_sharded = false;
  // With fully_sharded, if a weight's first axis is shorter than the number of devices. True: cuts the first
  // axis anyway, as transformers does. False: cuts the next axis, as torchtitan does for experts.
  bool first_axis_alone = false;
  // Active. Every layer of a stage keeps its rows, not just one layer. With full recomputation, every layer
  // keeps only its input. Counts the micro-batches that a schedule really has in flight: p - r if v is 1,
  // otherwise m_g.
  bool every_layer = false;
  // Active. The tensors that shared experts keep between their two products.
  bool shared_experts = false;
  // The multi-token-prediction layers on the last stage: their weights, and the tensors kept by them and by
  // their scores. If the embedding is on another stage, also a second embedding, as in Megatron-Core.
  bool prediction = false;
  // Active, last stage. The scores over the vocabulary, in the activations' type. Unless cross entropy is
  // fused, also in f32.
  bool logits = false;
  bool fused_cross_entropy = false;
  // Active, for one chunk. Rows packed for dispatch, and rows received in combine.
  bool communication_buffers = false;
  // Active. The number of experts borrowed from other devices, whose weights and f32 gradients are held for a
  // step.
  std::int64_t borrowed_experts = 0;
  // The allocator rounds each tensor up to a multiple of this number of bytes; 0 means no rounding.
  std::int64_t allocation_granule = 0;
};

// Parts of a layer that backward recomputes, with the names that Megatron-Core gives them.
struct SelectiveRecompute {
  // Attention scores and probabilities. Fused attention keeps neither. The output of core attention is kept
  // as the input of the output projection.
  bool core_attn = false;
  bool layernorm = false;       // the output of both norms
  bool mla_up_proj = false;     // queries, keys and values of latent attention
  bool moe_act = false;         // the input of the experts' last product
  bool mlp = false;             // all of a dense network
  bool moe = false;             // everything between router and combine
  bool shared_experts = false;  // all of the shared experts' network

  bool any() const {
    return core_attn || layernorm || mla_up_proj || moe_act || mlp || moe || shared_experts;
  }
};

// The parts of one piece of the pipeline, which has pp x vp pieces.
struct PipelinePiece {
  std::int64_t layers = 0;
  std::int64_t prediction_layers = 0;
  bool embedding = false;
  bool head = false;

  friend bool operator==(const PipelinePiece&, const PipelinePiece&) = default;
};

struct MemorySetup {
  Parallelism parallel = {};
  // The pieces in order; they are dealt to the stages in turn. If empty, layers are cut as evenly as
  // possible: the first piece has the embedding, and the last has the head and the multi-token-prediction
  // layers.
  std::vector<PipelinePiece> pieces = {};
  std::int64_t sequence = 4096;  // s
  std::int64_t micro_batch = 1;  // b
  bool full_recompute = true;
  bool unfused_attention = false;     // scores and probabilities of every query and key are kept
  SelectiveRecompute selective = {};  // only without full_recompute and with kept_tensors
  BytesPerNumber bytes = {};
  bool weights_as_stored = false;  // weights take the bytes of their tensors' types, if these are known
  ExtraTerms extra = {};
};

// Bytes and rows are limited to this number. No device comes near it, and sums cannot overflow.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 56;
inline constexpr std::int64_t most_rows = most_bytes;

// The weights of one kind on one device, with the bytes needed to train them.
struct StaticItem {
  std::string_view name;
  std::int64_t weights = 0;       // number of weights
  std::int64_t stored_bytes = 0;  // in the tensors' types; where unknown, weight_bytes each
  std::int64_t weight_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;

  std::int64_t total_bytes() const { return weight_bytes + gradient_bytes + optimizer_bytes; }
};

struct ActiveItem {
  std::string_view name;
  std::string_view source;  // "row 3" of Table 2, or the name of the extra term
  std::int64_t bytes = 0;
};

std::int64_t total_bytes(const std::vector<StaticItem>& items);
std::int64_t total_bytes(const std::vector<ActiveItem>& items);

class MemoryModel {
 public:
  // Throws Unsupported if the model's weights are not known. Throws InvalidArgument for:
  // - a number below 1, a degree above most_degree, or more devices than most_devices;
  // - more stages than layers, or pieces whose number is not pp x vp or whose layers do not add up to the
  //   model's;
  // - more expert-parallel devices than experts, or e_t that does not divide an expert's width;
  // - selective recomputation with full_recompute, of parts that the model does not have, or with Table 2;
  // - with kept_tensors, t that does not divide the attention heads;
  // - t c d that is not a multiple of e e_t, because the devices of a stage would not hold whole copies of
  //   the experts.
  MemoryModel(ModelDescription model, MemorySetup setup);

  const ModelDescription& model() const { return model_; }
  const MemorySetup& setup() const { return setup_; }
  int num_stages() const { return static_cast<int>(setup_.parallel.pipeline); }
  // The stage's layers, in the order of the model; with virtual stages they are not consecutive.
  // Multi-token-prediction layers, if counted, have the numbers after those of the model's layers.
  const std::vector<std::int64_t>& layers(int stage) const {
    return layers_[static_cast<std::size_t>(stage)];
  }
  bool has_experts(int stage) const;
  bool has_embedding(int stage) const { return any_piece(stage, &PipelinePiece::embedding); }
  bool has_head(int stage) const { return any_piece(stage, &PipelinePiece::head); }
  // True if the devices of the stage hold the weight, each its part.
  bool holds(int stage, const Weight& weight) const;
  // The number of multi-token-prediction layers on the stage.
  std::int64_t prediction_layers(int stage) const;
  // The largest number of layers in one of the stage's pieces of the pipeline. Counts all layers, or only
  // those with the given part.
  enum class Part { any, mixer, network, experts, dense };
  std::int64_t piece_layers(int stage, Part part = Part::any) const;
  // The number of weights of the stage's largest layer on one device, including the experts at home there,
  // before data parallelism shards them.
  std::int64_t largest_layer(int stage) const;

  // v p + p - 2 r - 1.
  std::int64_t schedule_copies(int stage) const;
  // The number of micro-batches that a schedule really has in flight: p - r with one piece per device (1F1B),
  // otherwise schedule_copies() (interleaved).
  std::int64_t micro_batches_in_flight(int stage) const;
  // m_g of the stage: schedule_copies(), or 1.
  std::int64_t stored_copies(int stage) const;

  std::vector<StaticItem> static_items(int stage) const;
  // `received` is s' in the paper's unit: rows per sequence of the micro-batch, before they are divided by t
  // and c.
  std::vector<ActiveItem> active_items(int stage, std::int64_t received, std::int64_t chunks) const;

  // Eq. 8: the largest number of rows in one chunk with which static and active memory fit into
  // `available_bytes` (alpha M_GPU). It is 0 if not even one row fits, and most_rows on a stage without
  // experts. Tensors that are kept of all chunks are counted for `received` rows.
  std::int64_t most_received(int stage, std::int64_t available_bytes, std::int64_t static_bytes,
                             std::int64_t received = 0) const;

  // The number of experts of a MoE layer on the device that is home to the most.
  std::int64_t local_experts() const;
  // The most rows that routing can send to one device: every token of the e e_t devices goes to min(k, local
  // experts) of this device's experts. The e_t devices that share experts all receive the same rows.
  std::int64_t worst_received() const;
  // Rows per device under even routing: k s e_t.
  std::int64_t even_received() const;

 private:
  bool any_piece(int stage, bool PipelinePiece::*part) const;

  ModelDescription model_;
  MemorySetup setup_;
  struct LayerParts {
    bool mixer = false;  // attention, or the layer part that replaces it
    bool experts = false;
    bool dense = false;
  };
  std::vector<LayerParts> parts_;  // by layer; multi-token-prediction layers last
  std::vector<PipelinePiece> pipeline_;
  std::vector<std::vector<std::int64_t>> pieces_;  // layers of each pipeline piece
  std::vector<std::vector<std::int64_t>> layers_;  // by stage
  std::vector<int> stage_of_;                      // by layer; -1 if the layer is not counted
};

}  // namespace evenkeel
