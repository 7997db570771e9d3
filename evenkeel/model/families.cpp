// The table of families. Tensor names and config keys are those of transformers 5.24.0 (conversion_mapping.py
// and models/*/). tests/torch/families_test.py checks each row against the class itself.
#include <algorithm>
#include <array>

#include "evenkeel/model/family.h"

namespace evenkeel {

namespace {

using Layers = Family::Layers;
using Groups = Family::Groups;
using Norm = AttentionShape::QueryKeyNorm;

// Most families: experts in "mlp", a router "gate".
ExpertTensors in_mlp(std::vector<std::string_view> router = {"gate.weight"},
                     std::vector<std::string_view> kept = {}) {
  return {.modules = {"mlp"}, .router = std::move(router), .kept = std::move(kept)};
}

// DeepSeek-V3 and its descendants.
ExpertTensors with_correction() {
  return in_mlp({"gate.weight", "gate.e_score_correction_bias"}, {"shared_experts"});
}

// Qwen2-MoE and its descendants.
ExpertTensors with_shared_gate() {
  return in_mlp({"gate.weight"}, {"shared_expert", "shared_expert_gate"});
}

ExpertTensors of_granite() {
  return {.modules = {"block_sparse_moe"},
          .router = {"router.weight", "router.layer.weight"},
          .stacked = {"input_linear", "output_linear"}};
}

WeightRule of_deepseek() {
  return {.experts = "n_routed_experts",
          .shared_width = SizeKey{"moe_intermediate_size"},
          .shared_count = SizeKey{"n_shared_experts", 0},
          .router_correction = true,
          .attention = {.kind = AttentionRule::Kind::latent}};
}

WeightRule of_sparse_deepseek() {
  WeightRule rule = of_deepseek();
  rule.attention.indexer = true;
  return rule;
}

WeightRule of_qwen3_next() {
  return {.shared_width = SizeKey{"shared_expert_intermediate_size"},
          .shared_gate = true,
          .attention = {.norm = Norm::per_head, .output_gate = true, .stated_head_dim = true},
          .delta = true};
}

WeightRule of_granite_weights(std::optional<SizeKey> shared) {
  return {.experts = "num_local_experts", .expert_width = "intermediate_size", .shared_width = shared};
}

WeightRule of_granite_hybrid() {
  WeightRule rule = of_granite_weights(SizeKey{"shared_intermediate_size"});
  rule.has_unlisted_weights = true;
  return rule;
}

std::vector<Family> mixtral_and_kin() {
  return {
      {.model_types = {"mixtral"},
       .architectures = {"Mixtral"},
       .layers = Layers::all,
       .tensors = ExpertTensors{.modules = {"block_sparse_moe", "mlp"}, .router = {"gate.weight"}},
       .weights = WeightRule{.experts = "num_local_experts",
                             .expert_width = "intermediate_size",
                             .attention = {.biases = {}}}},
      {.model_types = {"minimax"},
       .architectures = {"MiniMax"},
       .layers = Layers::all,
       .tensors = ExpertTensors{.modules = {"block_sparse_moe", "mlp"}, .router = {"gate.weight"}}},
      {.model_types = {"minimax_m2"},
       .architectures = {"MiniMaxM2"},
       .layers = Layers::all,
       .tensors = ExpertTensors{.modules = {"block_sparse_moe", "mlp"},
                                .router = {"gate.weight", "e_score_correction_bias"}},
       .weights = WeightRule{.experts = "num_local_experts",
                             .expert_width = "intermediate_size",
                             .router_correction = true,
                             .attention = {.biases = {}, .norm = Norm::whole, .stated_head_dim = true}}},
      {.model_types = {"minimax_m3_vl_text", "minimax_m3_vl"},
       .architectures = {"MiniMaxM3VL", "MiniMaxM3SparseForConditionalGeneration"},
       .tensors =
           ExpertTensors{.modules = {"block_sparse_moe", "mlp"},
                         .router = {"gate.weight", "e_score_correction_bias", "gate.e_score_correction_bias"},
                         .kept = {"shared_experts"}}},
      {.model_types = {"phimoe"},
       .architectures = {"Phimoe", "PhiMoE"},
       .layers = Layers::all,
       .tensors =
           ExpertTensors{.modules = {"block_sparse_moe", "mlp"}, .router = {"gate.weight", "router.weight"}},
       .weights = WeightRule{.experts = "num_local_experts",
                             .expert_width = "intermediate_size",
                             .norm_biases = true,
                             .head_bias = "lm_head_bias"}},
      {.model_types = {"kimi_linear"},
       .architectures = {"KimiLinear"},
       .tensors = ExpertTensors{.modules = {"block_sparse_moe", "mlp"},
                                .router = {"gate.weight", "gate.e_score_correction_bias"},
                                .kept = {"shared_experts"}}},
  };
}

std::vector<Family> qwen_and_olmo() {
  return {
      {.model_types = {"qwen2_moe"},
       .architectures = {"Qwen2Moe"},
       .layers = Layers::all,
       .tensors = with_shared_gate(),
       .weights = WeightRule{.shared_width = SizeKey{"shared_expert_intermediate_size"},
                             .shared_gate = true,
                             .attention = {.biases = {"qkv_bias", true}, .output_bias = false}}},
      {.model_types = {"qwen3_moe"},
       .architectures = {"Qwen3Moe"},
       .layers = Layers::all,
       .tensors = in_mlp(),
       .weights = WeightRule{.attention = {.norm = Norm::per_head}}},
      {.model_types = {"qwen3_vl_moe_text", "qwen3_vl_moe"},
       .architectures = {"Qwen3VLMoe", "Qwen3VLMoeText"},
       .layers = Layers::all,
       .tensors = in_mlp(),
       .weights = WeightRule{.attention = {.norm = Norm::per_head}}},
      {.model_types = {"qwen3_omni_moe_text"},
       .architectures = {"Qwen3OmniMoeThinkerText"},
       .layers = Layers::all,
       .tensors = in_mlp()},
      {.model_types = {"qwen3_next"},
       .architectures = {"Qwen3Next"},
       .layers = Layers::all,
       .tensors = with_shared_gate(),
       .weights = of_qwen3_next()},
      {.model_types = {"qwen3_5_moe_text", "qwen3_5_moe"},
       .architectures = {"Qwen3_5Moe", "Qwen3_5MoeText"},
       .layers = Layers::all,
       .tensors = with_shared_gate(),
       .weights = of_qwen3_next()},
      {.model_types = {"qwen4_exp_text"},
       .architectures = {"Qwen4Exp"},
       .layers = Layers::all,
       .tensors = with_shared_gate()},
      {.model_types = {"olmoe"},
       .architectures = {"Olmoe"},
       .layers = Layers::all,
       .tensors = in_mlp(),
       .weights = WeightRule{.expert_width = "intermediate_size", .attention = {.norm = Norm::whole}}},
      {.model_types = {"flex_olmo"},
       .architectures = {"FlexOlmo"},
       .layers = Layers::all,
       .tensors = in_mlp(),
       .weights = WeightRule{.expert_width = "intermediate_size", .attention = {.norm = Norm::whole}}},
      {.model_types = {"flint"}, .architectures = {"Flint"}, .tensors = with_shared_gate()},
      {.model_types = {"lara_mini"},
       .architectures = {"LaraMini"},
       .layers = Layers::all,
       .tensors = with_shared_gate()},
      {.model_types = {"mellum"}, .architectures = {"Mellum"}, .layers = Layers::all, .tensors = in_mlp()},
      {.model_types = {"cohere2_moe"},
       .architectures = {"Cohere2Moe"},
       .tensors = in_mlp({"gate.weight"}, {"shared_experts"})},
  };
}

std::vector<Family> deepseek_and_kin() {
  WeightRule v2 = of_deepseek();
  v2.router_correction = false;
  return {
      {.model_types = {"deepseek_v2"},
       .architectures = {"DeepseekV2"},
       .groups = Groups::unless_greedy,
       .tensors = in_mlp({"gate.weight"}, {"shared_experts"}),
       .weights = v2},
      {.model_types = {"deepseek_v3", "kimi_k2", "kimi_k25"},
       .architectures = {"DeepseekV3"},
       .layers = Layers::after_stated_dense,
       .groups = Groups::always_stated,
       .tensors = with_correction(),
       .weights = of_deepseek()},
      {.model_types = {"deepseek_v32"},
       .architectures = {"DeepseekV32"},
       .layers = Layers::after_stated_dense,
       .groups = Groups::always_stated,
       .tensors = with_correction(),
       .weights = of_sparse_deepseek()},
      {.model_types = {"deepseek_v4"},
       .architectures = {"DeepseekV4"},
       .layers = Layers::all,
       .tensors = ExpertTensors{.modules = {"ffn", "mlp"},
                                .router = {"gate.weight", "gate.bias", "gate.e_score_correction_bias"},
                                .kept = {"shared_experts"},
                                .id_tables = {"gate.tid2eid"}},
       .weights = WeightRule{.experts = "n_routed_experts",
                             .shared_width = SizeKey{"moe_intermediate_size"},
                             .has_unlisted_weights = true}},
      {.model_types = {"deepseek_ocr2_text", "unlimited_ocr_text"},
       .architectures = {"DeepseekOcr2Text", "UnlimitedOcrText"},
       .groups = Groups::unless_greedy,
       .tensors = in_mlp({"gate.weight"}, {"shared_experts"})},
      {.model_types = {"glm4_moe"},
       .architectures = {"Glm4Moe"},
       .layers = Layers::after_stated_dense,
       .tensors = with_correction(),
       .weights =
           WeightRule{
               .experts = "n_routed_experts",
               .shared_width = SizeKey{"moe_intermediate_size"},
               .shared_count = SizeKey{"n_shared_experts", 0},
               .router_correction = true,
               .attention = {.output_bias = false, .norm = Norm::per_head, .norm_switch = "use_qk_norm"}}},
      {.model_types = {"glm4_moe_lite"},
       .architectures = {"Glm4MoeLite"},
       .tensors = with_correction(),
       .weights = of_deepseek()},
      {.model_types = {"glm_moe_dsa"},
       .architectures = {"GlmMoeDsa"},
       .tensors = with_correction(),
       .weights = of_sparse_deepseek()},
      {.model_types = {"glm4v_moe_text", "glm4v_moe"},
       .architectures = {"Glm4vMoe", "Glm4vMoeText"},
       .layers = Layers::after_stated_dense,
       .tensors = with_correction()},
      {.model_types = {"glm5_next_text", "glm5_next"},
       .architectures = {"Glm5Next", "Glm5NextText"},
       .tensors = with_correction()},
      {.model_types = {"solar_open"},
       .architectures = {"SolarOpen"},
       .layers = Layers::all,
       .tensors = with_correction(),
       .weights = WeightRule{.experts = "n_routed_experts",
                             .shared_width = SizeKey{"moe_intermediate_size"},
                             .shared_count = SizeKey{"n_shared_experts", 0},
                             .router_correction = true,
                             .attention = {.output_bias = false, .stated_head_dim = true}}},
      {.model_types = {"dots1", "dots3_note_text"},
       .architectures = {"Dots1", "Dots3Note"},
       .tensors = with_correction()},
      {.model_types = {"axk1", "axk2"},
       .architectures = {"AXK1", "AXK2"},
       .groups = Groups::always_stated,
       .tensors =
           in_mlp({"gate.weight", "gate.e_score_correction_bias"}, {"shared_experts", "post_mlp_layernorm"})},
      {.model_types = {"beam"},
       .architectures = {"Beam"},
       .groups = Groups::always_stated,
       .tensors = with_correction()},
      {.model_types = {"bailing_hybrid"},
       .architectures = {"BailingHybrid"},
       .layers = Layers::after_stated_dense,
       .groups = Groups::always_stated,
       .tensors =
           in_mlp({"gate.weight", "gate.expert_bias", "gate.e_score_correction_bias"}, {"shared_experts"})},
      {.model_types = {"exaone_moe"},
       .architectures = {"ExaoneMoe"},
       .layers = Layers::after_stated_dense,
       .tensors = in_mlp({"gate.weight", "e_score_correction_bias", "gate.e_score_correction_bias"},
                         {"shared_experts"})},
      {.model_types = {"mimo_v2_flash"},
       .architectures = {"MiMoV2Flash"},
       .dense_prediction = true,
       .tensors = with_correction()},
      {.model_types = {"mistral4"},
       .architectures = {"Mistral4"},
       .tensors = in_mlp({"gate.weight"}, {"shared_experts"})},
      {.model_types = {"mistral_large4_text", "mistral_large4"},
       .architectures = {"MistralLarge4", "MistralLarge4Text"},
       .layers = Layers::after_stated_dense,
       .tensors =
           ExpertTensors{.modules = {"mlp", ""}, .router = {"gate.weight"}, .kept = {"shared_experts"}}},
      {.model_types = {"step3p5"}, .architectures = {"Step3p7Text"}, .tensors = with_correction()},
      {.model_types = {"hy_v4", "hy_v4_vl_text"},
       .architectures = {"HYV4", "HYV4VLText"},
       .tensors = with_correction()},
      {.model_types = {"muse_spark_text"},
       .architectures = {"MuseSparkText"},
       .tensors =
           in_mlp({"gate.weight", "gate.e_score_correction_bias"},
                  {"experts.post_expert_norm", "post_expert_proj", "pre_expert_norm", "pre_expert_proj"})},
  };
}

std::vector<Family> others() {
  return {
      {.model_types = {"gpt_oss"},
       .architectures = {"GptOss"},
       .layers = Layers::all,
       .tensors = in_mlp({"router.weight", "router.bias"}),
       .weights = WeightRule{.experts = "num_local_experts",
                             .expert_width = "intermediate_size",
                             .expert_biases = true,
                             .router_bias = true,
                             .attention = {.biases = {"attention_bias", true},
                                           .sinks = true,
                                           .stated_head_dim = true,
                                           .full_every = 2}}},
      {.model_types = {"openai_privacy_filter"},
       .architectures = {"OpenAIPrivacyFilter"},
       .layers = Layers::all,
       .tensors = in_mlp({"router.weight", "router.bias"})},
      {.model_types = {"llama4_text", "llama4"},
       .architectures = {"Llama4", "Llama4Text"},
       .tensors =
           ExpertTensors{.modules = {"feed_forward"}, .router = {"router.weight"}, .kept = {"shared_expert"}},
       .weights = WeightRule{.experts = "num_local_experts",
                             .expert_width = "intermediate_size",
                             .dense_width = "intermediate_size_mlp",
                             .shared_width = SizeKey{"intermediate_size"},
                             .attention = {.stated_head_dim = true, .full_every = 4}}},
      {.model_types = {"gemma4_text", "gemma4"},
       .architectures = {"Gemma4", "Gemma4Text"},
       .layers = Layers::all,
       .tensors = ExpertTensors{.modules = {""},
                                .router = {"router.proj.weight", "router.per_expert_scale"},
                                .kept = {"router.scale"}},
       .weights =
           WeightRule{.top_k = "top_k_experts",
                      .shared_width = SizeKey{"intermediate_size"},
                      .router_scales = true,
                      .attention = {.norm = Norm::per_head, .wide_layers = true, .stated_head_dim = true},
                      .norms = 4,
                      .expert_norms = 3,
                      .layer_scalar = true,
                      .tied = true}},
      {.model_types = {"diffusion_gemma_text"},
       .architectures = {"DiffusionGemmaText", "DiffusionGemmaEncoderText"},
       .layers = Layers::all,
       .tensors = ExpertTensors{.modules = {""},
                                .router = {"router.proj.weight", "router.per_expert_scale"},
                                .kept = {"router.scale"}}},
      {.model_types = {"granitemoe"},
       .architectures = {"GraniteMoe"},
       .layers = Layers::all,
       .tensors = of_granite(),
       .weights = of_granite_weights({})},
      {.model_types = {"granitemoeshared"},
       .architectures = {"GraniteMoeShared"},
       .layers = Layers::all,
       .tensors = of_granite(),
       .weights = of_granite_weights(SizeKey{"shared_intermediate_size"})},
      {.model_types = {"granitemoehybrid"},
       .architectures = {"GraniteMoeHybrid"},
       .layers = Layers::all,
       .tensors = of_granite(),
       .weights = of_granite_hybrid()},
      {.model_types = {"granitemoe_swa"},
       .architectures = {"GraniteMoeSWA"},
       .layers = Layers::all,
       .tensors = of_granite()},
      {.model_types = {"nemotron_h"},
       .architectures = {"NemotronH"},
       .tensors = ExpertTensors{.modules = {"mixer"},
                                .router = {"gate.weight", "gate.e_score_correction_bias"},
                                .kept = {"shared_experts", "fc1_latent_proj", "fc2_latent_proj"}},
       .weights = WeightRule{.experts = "n_routed_experts",
                             .shared_width = SizeKey{"moe_shared_expert_intermediate_size"},
                             .gated = false,
                             .latent_width = "moe_latent_size",
                             .attention = {.stated_head_dim = true},
                             .has_unlisted_weights = true}},
      {.model_types = {"ernie4_5_moe"},
       .architectures = {"Ernie4_5_Moe"},
       .dense_prediction = true,
       .tensors = in_mlp(
           {"gate.weight", "moe_statics.e_score_correction_bias", "gate.moe_statics.e_score_correction_bias"},
           {"shared_experts"}),
       .weights = WeightRule{.experts = "moe_num_experts",
                             .top_k = "moe_k",
                             .shared_width = SizeKey{"moe_intermediate_size"},
                             .shared_count = SizeKey{"moe_num_shared_experts", 0},
                             .router_correction = true,
                             .attention = {.biases = {}},
                             .tied = true}},
      {.model_types = {"ernie4_5_vl_moe", "ernie4_5_vl_moe_text"},
       .architectures = {"Ernie4_5_VLMoe"},
       .dense_prediction = true,
       .not_permuted =
           "a layer has experts for text and others for images, and its router's tensors hold both; "
           "a placement has one order for each layer"},
      {.model_types = {"hunyuan_v1_moe"},
       .architectures = {"HunYuanMoEV1"},
       .layers = Layers::all,
       .tensors = in_mlp({"gate.wg.weight"}, {"shared_mlp"}),
       .weights = WeightRule{.top_k = "moe_topk",
                             .expert_width = "intermediate_size",
                             .shared_width = SizeKey{"intermediate_size"},
                             .attention = {.norm = Norm::per_head}}},
      {.model_types = {"hy_v3"},
       .architectures = {"HYV3"},
       .tensors = in_mlp({"gate.weight", "router.gate.weight", "expert_bias", "e_score_correction_bias"},
                         {"shared_mlp", "shared_experts"})},
      {.model_types = {"jamba"},
       .architectures = {"Jamba"},
       .tensors = ExpertTensors{.modules = {"feed_forward"}, .router = {"router.weight"}}},
      {.model_types = {"lfm2_moe"},
       .architectures = {"Lfm2Moe"},
       .tensors = ExpertTensors{.modules = {"feed_forward"}, .router = {"gate.weight", "expert_bias"}}},
      {.model_types = {"afmoe"},
       .architectures = {"Afmoe"},
       .tensors = in_mlp({"router.gate.weight", "expert_bias"}, {"shared_experts"})},
      {.model_types = {"aria_text", "aria"},
       .architectures = {"Aria", "AriaText"},
       .layers = Layers::all,
       .tensors = in_mlp({"router.weight"}, {"shared_experts"})},
      {.model_types = {"laguna"},
       .architectures = {"Laguna"},
       .tensors = in_mlp({"gate.weight", "experts.e_score_correction_bias", "gate.e_score_correction_bias"},
                         {"shared_expert", "shared_experts"})},
      {.model_types = {"kolibri1"},
       .architectures = {"Kolibri1"},
       .layers = Layers::all,
       .tensors =
           ExpertTensors{.modules = {"mlp", "moe"},
                         .router = {"gate.weight", "router.expert_bias", "gate.e_score_correction_bias"},
                         .kept = {"shared_experts"}}},
      {.model_types = {"inkling2_text", "inkling2_loop_text", "inkling2", "inkling2_loop"},
       .architectures = {"Inkling2", "Inkling2Loop"},
       .layers = Layers::all,
       .tensors = in_mlp({"gate.weight", "gate.bias", "gate.e_score_correction_bias"})},
      {.model_types = {"inkling_text", "inkling_mm_model"},
       .architectures = {"Inkling"},
       .tensors = ExpertTensors{.modules = {"mlp"},
                                .router = {"gate.weight", "gate.e_score_correction_bias", "gate.bias"},
                                .kept = {"gate.global_scale", "global_scale", "shared_experts"},
                                .has_extra_rows = true}},
      {.model_types = {"zaya"},
       .architectures = {"Zaya"},
       .layers = Layers::all,
       .tensors = ExpertTensors{.modules = {"mlp"},
                                .router = {"gate.router_mlp.out_proj.weight", "gate.balancing_biases"},
                                .kept = {"gate.down_proj", "gate.router_mlp.fc1", "gate.router_mlp.fc2",
                                         "gate.router_mlp.norm", "gate.router_states_scale"},
                                .has_extra_rows = true}},
      {.model_types = {"longcat_flash"},
       .architectures = {"LongcatFlash"},
       .layers = Layers::all,
       .dense_prediction = true,
       .not_permuted =
           "its routers also choose among experts without weights, which a placement cannot place"},
      // Only the layers with experts are known.
      {.model_types = {"dbrx"}, .architectures = {"Dbrx"}, .layers = Layers::all},
      {.model_types = {"grok-1"}, .layers = Layers::all},
      {.model_types = {"jetmoe"}, .architectures = {"JetMoe"}, .layers = Layers::all},
      {.model_types = {"minimax_m1"}, .architectures = {"MiniMaxM1"}, .layers = Layers::all},
      {.model_types = {"longcat_flash_ngram", "mimo", "mimo_v2"}, .dense_prediction = true},
  };
}

}  // namespace

const std::vector<Family>& known_families() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all;
    for (auto& part : {mixtral_and_kin(), qwen_and_olmo(), deepseek_and_kin(), others()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return families;
}

const Family* known_family(std::string_view model_type) {
  for (const Family& family : known_families())
    if (std::ranges::find(family.model_types, model_type) != family.model_types.end()) return &family;
  return nullptr;
}

const Family* family_of_architecture(std::string_view architecture) {
  constexpr std::array<std::string_view, 3> endings = {"ForCausalLM", "ForConditionalGeneration", "Model"};
  for (const Family& family : known_families())
    for (const std::string_view name : family.architectures)
      if (architecture.starts_with(name) &&
          std::ranges::find(endings, architecture.substr(name.size())) != endings.end())
        return &family;
  return nullptr;
}

}  // namespace evenkeel
