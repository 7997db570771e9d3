// Names of the parts of a memory set-up: degrees of parallelism, extra terms, and the parts of a layer that
// backward recomputes.
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
// "tp=2,pp=4"; degrees of 1 are left out.
std::string to_text(const Parallelism& parallel);

// A term that frameworks have and the paper leaves out.
struct NamedTerm {
  std::string_view name;
  bool ExtraTerms::*on;
  bool usual;       // every framework has it
  bool beside_all;  // can be combined with all of the paper's terms
};
// The terms that are not `usual` are sharding of the optimizer, sharding of weights, and scaling by router
// weights outside the experts' kernels. They depend on the trainer's options.
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
// Parses "logits,fsdp": names of terms, or "all". Throws InvalidArgument.
std::vector<std::string> parse_terms(const std::string& argument, const std::string& text);
// Names of the terms that are on.
std::vector<std::string_view> names_of(const ExtraTerms& terms);

// How the loss treats the scores over the vocabulary.
enum class CrossEntropy { plain, fused, chunked };
inline constexpr std::array<const char*, 3> cross_entropies = {"plain", "fused", "chunked"};
// The usual terms, or none if `paper` is set, plus the terms in `with`, minus the terms in `without`. Throws
// InvalidArgument for a term in `without` that is not counted, and for terms that need kept_tensors if that
// is not counted.
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
// Parses "full", "none", or the names of parts; recompute_text() writes them. Parsing throws InvalidArgument.
void parse_recompute(const std::string& argument, const std::string& text, MemorySetup& setup);
std::string recompute_text(const MemorySetup& setup);

// Parses the pieces of the pipeline, in one of two forms. The first is the number of layers in each piece
// ("3,4,4,3"): the embedding is then in the first piece, and the head and the multi-token-prediction layers
// are in the last. The second is Megatron-Core's --pipeline-model-parallel-layout ("Et*3|(tt|)*29m|L").
// Throws InvalidArgument.
std::vector<PipelinePiece> parse_pipeline(const std::string& argument, const std::string& text,
                                          std::int64_t prediction_layers);

}  // namespace evenkeel
