"""Makes tests/data/model_parameters.json: how many numbers tiny models of transformers have, by what they are for.

    tools/peers.sh && python3 tests/peers/parameter_counts.py

tests/model/parameters_test.cpp reads it; that every family is counted right is proven by tests/torch/families_test.py.

The counts are of what a checkpoint would hold (state_dict), so DeepSeek-V3's correction of the router, which is no
parameter to PyTorch, is among them.
"""

import json

import peer

peer.require("torch", "transformers")

import torch  # noqa: E402
import transformers  # noqa: E402

FILE = peer.ROOT / "tests" / "data" / "model_parameters.json"
SIZES = {"vocab_size": 97, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts_per_tok": 3}
LATENT = {"kv_lora_rank": 12, "qk_rope_head_dim": 8, "qk_nope_head_dim": 10, "v_head_dim": 14}
# No two sizes of a model are equal, so that no term can stand in for another.
MODELS = {
    "mixtral": (
        "Mixtral",
        {"hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 3, "num_local_experts": 5},
    ),
    "mixtral, head_dim, tied": (
        "Mixtral",
        {"hidden_size": 36, "head_dim": 10, "intermediate_size": 20, "num_hidden_layers": 2, "num_local_experts": 6}
        | {"tie_word_embeddings": True},
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        {"hidden_size": 40, "head_dim": 6, "intermediate_size": 52, "moe_intermediate_size": 14}
        | {"num_hidden_layers": 5, "num_experts": 7, "decoder_sparse_step": 2, "mlp_only_layers": [3]},
    ),
    "qwen3_moe, biases": (
        "Qwen3Moe",
        {"hidden_size": 40, "head_dim": 8, "intermediate_size": 52, "moe_intermediate_size": 14}
        | {"num_hidden_layers": 2, "num_experts": 9, "attention_bias": True},
    ),
    "olmoe": ("Olmoe", {"hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "num_experts": 6}),
    "olmoe, biases": (
        "Olmoe",
        {"hidden_size": 48, "intermediate_size": 22, "num_hidden_layers": 3, "num_experts": 4, "attention_bias": True},
    ),
    "deepseek_v2": (
        "DeepseekV2",
        {"hidden_size": 36, "intermediate_size": 50, "moe_intermediate_size": 18, "num_hidden_layers": 4}
        | {"n_routed_experts": 6, "n_shared_experts": 2, "first_k_dense_replace": 1, "q_lora_rank": 20}
        | LATENT,
    ),
    "deepseek_v2, full queries, biases": (
        "DeepseekV2",
        {"hidden_size": 36, "intermediate_size": 50, "moe_intermediate_size": 18, "num_hidden_layers": 3}
        | {"n_routed_experts": 5, "n_shared_experts": 1, "first_k_dense_replace": 2, "q_lora_rank": None}
        | {"attention_bias": True}
        | LATENT,
    ),
    "deepseek_v3": (
        "DeepseekV3",
        {"hidden_size": 44, "intermediate_size": 54, "moe_intermediate_size": 16, "num_hidden_layers": 5}
        | {"n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 24}
        | {"n_group": 2, "topk_group": 1, "num_key_value_heads": 4}
        | LATENT,
    ),
    "deepseek_v3, biases": (
        "DeepseekV3",
        {"hidden_size": 44, "intermediate_size": 54, "moe_intermediate_size": 16, "num_hidden_layers": 2}
        | {"n_routed_experts": 6, "n_shared_experts": 2, "first_k_dense_replace": 0, "q_lora_rank": 22}
        | {"n_group": 1, "topk_group": 1, "num_key_value_heads": 4, "attention_bias": True}
        | LATENT,
    ),
    "gpt_oss": (
        "GptOss",
        {"hidden_size": 30, "head_dim": 6, "intermediate_size": 26, "num_hidden_layers": 2, "num_local_experts": 5},
    ),
}
# What of its settings a model is built from; a config.json has more, and the reader must not need more.
CONFIG_KEYS = [
    "model_type", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers", "vocab_size",
    "num_attention_heads", "num_key_value_heads", "head_dim", "num_experts", "num_local_experts", "n_routed_experts",
    "n_shared_experts", "num_experts_per_tok", "first_k_dense_replace", "decoder_sparse_step", "mlp_only_layers",
    "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "attention_bias",
    "tie_word_embeddings",
]  # fmt: skip


def kind_of(name):
    if "embed_tokens" in name:
        return "embedding"
    if name.startswith("lm_head"):
        return "head"
    if name == "model.norm.weight":
        return "final_norm"
    if "layernorm" in name and "self_attn" not in name:
        return "norms"
    if "self_attn" in name:
        return "attention"
    if "shared_expert" in name:
        return "shared_experts"
    if ".experts." in name:
        return "experts"
    if ".gate." in name or ".router." in name:
        return "router"
    return "dense"


def build(label):
    name, options = MODELS[label]
    config = getattr(transformers, name + "Config")(**(SIZES | options))
    return getattr(transformers, name + "ForCausalLM")(config)


def counts_of(model):
    counts, seen = {}, set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in seen:  # tied
            continue
        seen.add(tensor.data_ptr())
        counts[kind_of(name)] = counts.get(kind_of(name), 0) + tensor.numel()
    return counts | {"total": sum(counts.values())}


def entry(label):
    model = build(label)
    settings = model.config.to_dict()
    # A null of q_lora_rank has a meaning; other settings that are absent are left absent.
    config = {key: settings.get(key) for key in CONFIG_KEYS if settings.get(key) is not None or key == "q_lora_rank"}
    if "qk_rope_head_dim" not in config:
        config.pop("q_lora_rank", None)
    return {"config": config, "counts": counts_of(model)}


def main():
    transformers.logging.set_verbosity_error()
    models = {label: entry(label) for label in MODELS}
    source = f"transformers {transformers.__version__}, torch {torch.__version__}, by tests/peers/parameter_counts.py"
    FILE.write_text(json.dumps({"source": source, "models": models}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
