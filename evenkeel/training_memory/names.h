// Names of the parts of a memory set-up: degrees of parallelism, the terms beside the paper's, and
// the parts of a layer that backward computes again.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel {

inline constexpr std::array<std::pair<std::string_view, std::int64_t Parallelism::*>, 7> degree_names = {
    {{"tp", &Parallelism::tensor},
     {"pp", &Parallelism::pipeline},
     {"ep", &Parallelism::expert},
     {"dp", &Parallelism::data},
     {"vp", &Parallelism::virtual_stages},
     {"cp", &Parallelism::context},
     {"etp", &Parallelism::expert_tensor}}};
// "tp=2,pp=4", without what is 1.
std::string to_text(const Parallelism& parallel);

// A term that frameworks hold beside the paper's.
struct NamedTerm {
  std::string_view name;
  bool ExtraTerms::*on;
  bool usual;       // in every framework
  bool beside_all;  // of those that all of the paper's terms can stand beside
};
// How the optimizer and weights are sharded is the trainer's choice, and so is where router weights scale;
// the others are there in every framework.
inline constexpr std::array<NamedTerm, 11> named_terms = {
    {{"replicated", &ExtraTerms::replicated, true, true},
     {"sharded-optimizer", &ExtraTerms::sharded_optimizer, false, true},
     {"every-layer", &ExtraTerms::every_layer, true, true},
     {"shared-experts", &ExtraTerms::shared_experts, true, true},
     {"prediction", &ExtraTerms::prediction, true, true},
     {"logits", &ExtraTerms::logits, true, true},
     {"buffers", &ExtraTerms::communication_buffers, true, true},
     {"kept-tensors", &ExtraTerms::kept_tensors, true, false},
     {"layer-gradients", &ExtraTerms::layer_gradients, true, false},
     {"fsdp", &ExtraTerms::fully_sharded, false, false},
     {"expert-outputs", &ExtraTerms::expert_outputs, false, false}}};
// "logits,fsdp": names of terms, or "all". Throws InvalidArgument.
std::vector<std::string> parse_terms(const std::string& argument, const std::string& text);
// Of those that are on.
std::vector<std::string_view> names_of(const ExtraTerms& terms);

// How the loss treats the scores over the vocabulary.
enum class CrossEntropy { plain, fused, chunked };
inline constexpr std::array<const char*, 3> cross_entropies = {"plain", "fused", "chunked"};
// The usual terms, or with `paper` none, with those that are named and without the others. Throws
// InvalidArgument for a term of one that the other does not count.
ExtraTerms counted_terms(ExtraTerms terms, const std::vector<std::string>& with,
                         const std::vector<std::string>& without, bool paper, CrossEntropy cross_entropy);

inline constexpr std::array<std::pair<std::string_view, bool SelectiveRecompute::*>, 7> recompute_parts = {
    {{"core_attn", &SelectiveRecompute::core_attn},
     {"layernorm", &SelectiveRecompute::layernorm},
     {"mla_up_proj", &SelectiveRecompute::mla_up_proj},
     {"moe_act", &SelectiveRecompute::moe_act},
     {"mlp", &SelectiveRecompute::mlp},
     {"moe", &SelectiveRecompute::moe},
     {"shared_experts", &SelectiveRecompute::shared_experts}}};
// "full", "none", or the parts. Parsing throws InvalidArgument.
void parse_recompute(const std::string& argument, const std::string& text, MemorySetup& setup);
std::string recompute_text(const MemorySetup& setup);

// Pieces of the pipeline: their layers ("3,4,4,3": the embedding is in the first, the head and layers for
// further tokens in the last), or as Megatron-Core's --pipeline-model-parallel-layout writes them
// ("Et*3|(tt|)*29m|L"). Throws InvalidArgument.
std::vector<PipelinePiece> parse_pipeline(const std::string& argument, const std::string& text,
                                          std::int64_t prediction_layers);

}  // namespace evenkeel
