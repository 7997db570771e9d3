// The memory of one device while a Mixture-of-Experts model trains: MemFine's memory model, row for row, and
// beside it the terms that the paper leaves out.
//
// Problem    given a model, how it is spread over devices, and how many rows a device's experts receive:
//            bytes of weights, gradients and optimizer states (static), bytes of what forward keeps for
//            backward (active), for every pipeline stage.
// Layout     a stage has t c d devices. Its experts are cut into e e_t parts, dealt to those devices in
//            turn: e parts by expert, each in e_t slices of an expert's width. t c d is a multiple of e e_t,
//            so that the devices together hold whole copies of the model.
// Static     Eq. 1: (D_para + D_grad + 4 D_opt) / t times the weights of the stage's layers. The paper does
//            not say how experts, dense layers and embeddings enter; here a device has ceil(E / e) experts of
//            every MoE layer, 1 / e_t of each; the first stage has the embedding, the last the final norm and
//            the head. With t = 1, as the paper runs it, this is the paper's.
// Active     Eq. 2: (m_g / (t c)) D_t b (s (5 h + a h_d + 2 k_a h_d + e_n) + s' (2 h + 2 g_e / e_t)),
//            one item for each row of Table 2; of one MoE layer, as the paper has it. With chunks, s' is that
//            of a chunk: ceil(s' / chunks).
// m_g        v p + p - 2 r - 1 on stage r, and 1 with full recomputation.
// More       ExtraTerms, all off by default: with them off every number is the paper's. The command turns on
//            those that every framework holds. kept_tensors replaces Table 2 by the tensors that
//            Megatron-Core keeps; against which published measurements: docs/memory.md.
// Source     MemFine (arXiv 2511.21431v4), section 3; which of its printed numbers follow: docs/memory.md.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/model/model_description.h"

namespace evenkeel {

// Over how many devices each dimension is spread: t, p, e, d, v (pieces of the pipeline a device has), c and
// e_t. Dense weights and tokens are spread over t, c and d; the same devices hold the experts, spread over e
// and e_t.
struct Parallelism {
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  std::int64_t expert = 1;
  std::int64_t data = 1;
  std::int64_t virtual_stages = 1;
  std::int64_t context = 1;
  std::int64_t expert_tensor = 1;  // how many devices share an expert, each with a slice of its width

  std::int64_t expert_parts() const { return expert * expert_tensor; }
  std::int64_t stage_devices() const { return tensor * context * data; }
  std::int64_t devices() const { return stage_devices() * pipeline; }
  // The least d with which the devices of a stage hold whole copies of its experts.
  std::int64_t least_data() const;

  friend bool operator==(const Parallelism&, const Parallelism&) = default;
};

inline constexpr std::int64_t most_degree = std::int64_t{1} << 20;
inline constexpr std::int64_t most_devices = std::int64_t{1} << 40;

struct BytesPerNumber {
  std::int64_t activation = 2;  // D_t
  std::int64_t weight = 2;      // D_para
  std::int64_t gradient = 4;    // D_grad
  std::int64_t optimizer = 12;  // 4 D_opt, all states of a weight: Adam's two and the weight itself, in f32
};

// Terms that the paper leaves out and frameworks have. docs/memory.md says where each comes from.
struct ExtraTerms {
  // Active. A layer's tensors as frameworks with fused kernels keep them, instead of the rows of Table 2.
  bool kept_tensors = false;
  // Active, with kept_tensors. The gradients of one layer's tensors, which backward holds while it is there.
  bool layer_gradients = false;
  // Active, with kept_tensors. What experts give, where router weights scale it outside their kernels.
  bool expert_outputs = false;
  // Static. Norms, routers and the low-rank parts of latent attention are whole on each tensor-parallel
  // device.
  bool replicated = false;
  // Static. A weight's optimizer states are spread over the devices that have the same weight: d c of them,
  // of an expert t c d / (e e_t).
  bool sharded_optimizer = false;
  // Static: weights and gradients are spread likewise. Active: layers gathered to be computed.
  bool fully_sharded = false;
  // With it: the first axis is cut even where it is shorter than there are devices, as transformers does;
  // else then the next one (torchtitan's experts).
  bool first_axis_alone = false;
  // Active. Without recomputation every layer of a stage keeps its rows, not one; with it, its input. Counts
  // the micro-batches that a schedule really has in flight: p - r where v is 1, else m_g.
  bool every_layer = false;
  // Active. What shared experts keep between their two products.
  bool shared_experts = false;
  // The layers that predict further tokens, on the last stage: their weights, those of a second embedding
  // where the first is on another stage, as Megatron-Core has it, and what they and their scores keep.
  bool prediction = false;
  // Active, last stage. The scores over the vocabulary: in the activations' type, and in f32 too unless
  // cross entropy is fused.
  bool logits = false;
  bool fused_cross_entropy = false;
  // Active. Rows packed to be sent in dispatch, and rows as they come back in combine, of one chunk.
  bool communication_buffers = false;
  // Active. Experts of other devices whose weights, and f32 gradients of them, are here for a step.
  std::int64_t borrowed_experts = 0;
  // Each tensor takes a multiple of this many bytes of the allocator; 0: just its own.
  std::int64_t allocation_granule = 0;
};

// Parts of a layer that backward computes again, by Megatron-Core's names for them.
struct SelectiveRecompute {
  // Of scores and probabilities; fused attention keeps none, and what it makes is the output projection's
  // input.
  bool core_attn = false;
  bool layernorm = false;       // what both norms give
  bool mla_up_proj = false;     // queries, keys and values of latent attention
  bool moe_act = false;         // what goes into the experts' last product
  bool mlp = false;             // all of a dense network
  bool moe = false;             // all between router and combine
  bool shared_experts = false;  // all of their network

  bool any() const {
    return core_attn || layernorm || mla_up_proj || moe_act || mlp || moe || shared_experts;
  }
};

// What one of pp x vp pieces of the pipeline has.
struct PipelinePiece {
  std::int64_t layers = 0;
  std::int64_t prediction_layers = 0;
  bool embedding = false;
  bool head = false;

  friend bool operator==(const PipelinePiece&, const PipelinePiece&) = default;
};

struct MemorySetup {
  Parallelism parallel = {};
  // In order, dealt to the stages in turns; empty: layers as evenly as they allow, the embedding first, the
  // head and layers for further tokens last.
  std::vector<PipelinePiece> pieces = {};
  std::int64_t sequence = 4096;  // s
  std::int64_t micro_batch = 1;  // b
  bool full_recompute = true;
  bool unfused_attention = false;     // scores and probabilities of every query and key are kept
  SelectiveRecompute selective = {};  // without full_recompute, and with kept_tensors
  BytesPerNumber bytes = {};
  bool weights_as_stored = false;  // in the types of their tensors, where those are known
  ExtraTerms extra = {};
};

// Bytes above this are said to be this, and so are rows: no device comes near, and sums stay far from
// overflow.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 56;
inline constexpr std::int64_t most_rows = most_bytes;

// Weights of one kind on one device, with what training them needs.
struct StaticItem {
  std::string_view name;
  std::int64_t weights = 0;       // how many
  std::int64_t stored_bytes = 0;  // in the types of their tensors, else as weight_bytes
  std::int64_t weight_bytes = 0;
  std::int64_t gradient_bytes = 0;
  std::int64_t optimizer_bytes = 0;

  std::int64_t total_bytes() const { return weight_bytes + gradient_bytes + optimizer_bytes; }
};

struct ActiveItem {
  std::string_view name;
  std::string_view source;  // "row 3" of Table 2, or the extra term
  std::int64_t bytes = 0;
};

std::int64_t total_bytes(const std::vector<StaticItem>& items);
std::int64_t total_bytes(const std::vector<ActiveItem>& items);

class MemoryModel {
 public:
  // Throws Unsupported: the weights of the model are not known. InvalidArgument: a number below 1 or a degree
  // above most_degree, more stages than layers, more expert-parallel devices than experts, e_t that does not
  // divide an expert's width, more than most_devices, pieces that are not pp x vp or do not add up to the
  // layers, selective recomputation beside full, of parts that the model has not, or of Table 2, which has
  // not its tensors, with kept_tensors t that does not divide the attention heads, and devices of a stage, t
  // c d, that are no multiple of e e_t: they would not hold the experts.
  MemoryModel(ModelDescription model, MemorySetup setup);

  const ModelDescription& model() const { return model_; }
  const MemorySetup& setup() const { return setup_; }
  int num_stages() const { return static_cast<int>(setup_.parallel.pipeline); }
  // The stage's layers, in the order of the model; with virtual stages they are not consecutive. Those that
  // predict further tokens, where they are counted, are numbered behind the model's.
  const std::vector<std::int64_t>& layers(int stage) const {
    return layers_[static_cast<std::size_t>(stage)];
  }
  bool has_experts(int stage) const;
  bool has_embedding(int stage) const { return any_piece(stage, &PipelinePiece::embedding); }
  bool has_head(int stage) const { return any_piece(stage, &PipelinePiece::head); }
  // Whether a device of the stage has its part of a weight.
  bool holds(int stage, const Weight& weight) const;
  // How many of its layers predict further tokens.
  std::int64_t prediction_layers(int stage) const;
  // How many layers one piece of the pipeline on this stage has at most: all, or those that have such a part.
  enum class Part { any, mixer, network, experts, dense };
  std::int64_t piece_layers(int stage, Part part = Part::any) const;
  // Weights of the stage's largest layer on one device, of experts those it is home to, where data
  // parallelism shards nothing.
  std::int64_t largest_layer(int stage) const;

  // v p + p - 2 r - 1.
  std::int64_t schedule_copies(int stage) const;
  // The micro-batches that a schedule really has in flight: p - r with one piece a device (1F1B), else the
  // above (interleaved).
  std::int64_t micro_batches_in_flight(int stage) const;
  // m_g of the stage: schedule_copies(), or 1.
  std::int64_t stored_copies(int stage) const;

  std::vector<StaticItem> static_items(int stage) const;
  // `received` is s', in the paper's unit: rows for each sequence of the micro-batch, before t and c divide
  // them.
  std::vector<ActiveItem> active_items(int stage, std::int64_t received, std::int64_t chunks) const;

  // Eq. 8: the most rows that leave static and active memory within `available_bytes` (alpha M_GPU) in one
  // chunk; 0 if not one does, and most_rows on a stage without experts. What is kept of all chunks is that of
  // `received` rows.
  std::int64_t most_received(int stage, std::int64_t available_bytes, std::int64_t static_bytes,
                             std::int64_t received = 0) const;

  // Experts of a MoE layer that a device is home to, at most.
  std::int64_t local_experts() const;
  // The most rows that routing can send to one device: every token of the e e_t devices to min(k, local
  // experts) of its experts. The e_t devices that share experts all receive the same rows.
  std::int64_t worst_received() const;
  // The rows of a device under even routing: k s e_t.
  std::int64_t even_received() const;

 private:
  bool any_piece(int stage, bool PipelinePiece::*part) const;

  ModelDescription model_;
  MemorySetup setup_;
  struct LayerParts {
    bool mixer = false;  // attention, or what stands in its place
    bool experts = false;
    bool dense = false;
  };
  std::vector<LayerParts> parts_;  // by layer, those that predict further tokens behind
  std::vector<PipelinePiece> pipeline_;
  std::vector<std::vector<std::int64_t>> pieces_;  // of the pipeline: layers
  std::vector<std::vector<std::int64_t>> layers_;  // by stage
  std::vector<int> stage_of_;                      // by layer; -1 of layers that are not counted
};

}  // namespace evenkeel
