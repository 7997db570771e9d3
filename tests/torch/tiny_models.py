"""A tiny random model of every type that transformers can run expert-parallel, with inputs for one forward.

    for model_type, make in tiny_models():
        model, inputs = make()

Includes every type whose config has an expert-parallel plan with an `ep_dispatch_experts` rule. Sizes are set by the
names that configs use, so that types added to transformers are built too, or fail here. LEFT_OUT lists the exceptions.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel

EXPERTS = 8
TOP_K = 2
LAYERS = 3
BATCH = 2
LENGTH = 6
VOCABULARY = 64

TinyModel = tuple[PreTrainedModel, dict[str, torch.Tensor]]

LEFT_OUT = {
    "dots3_note_vision_encoder": "it takes the patches of images, not tokens",
    "qwen3_omni_moe_talker_text": "its model takes the states of another model, not tokens",
    "sarvam_mla": "transformers 5.24 has its config and no model",
    "sarvam_moe": "transformers 5.24 has its config and no model",
}
"""Types without a tiny model, and why."""

_SIZES = {
    "vocab_size": VOCABULARY,
    "unpadded_vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size": 32,
    "moe_hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_sliding_attention_heads": 4,
    "swa_num_attention_heads": 4,
    "num_key_value_heads": 2,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 8,
    "max_position_embeddings": 128,
    "n_group": 1,
    "num_expert_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "o_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "qk_head_dim": 16,
    "v_head_dim": 8,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "linear_num_heads": 4,
    "linear_head_dim": 8,
    "first_k_dense_replace": 1,
    "mlp_layer_types": ["dense", "sparse", "sparse"],
}
"""Applied if the config sets its own value."""

_SIZES_OF_EXPERTS = {
    "head_dim": 8,
    "moe_intermediate_size": 48,
    "num_experts": EXPERTS,
    "num_local_experts": EXPERTS,
    "n_routed_experts": EXPERTS,
    "moe_num_experts": EXPERTS,
    "num_experts_per_tok": TOP_K,
    "num_experts_per_token": TOP_K,
    "moe_k": TOP_K,
    "moe_topk": TOP_K,
    "top_k_experts": TOP_K,
}
"""Applied if the config has the attribute; many configs leave these unset until a checkpoint sets them."""

_HYBRID = ["linear_attention", "full_attention", "linear_attention"]

_QSA = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": 4,
    "indexer_compress_ratio": 2,
}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}

_SIZES_OF_TYPE: dict[str, dict[str, Any]] = {
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse", "sparse"]},
    "deepseek_v4": {"mlp_layer_types": ["hash_moe", "moe", "moe"]},
    "diffusion_gemma_text": {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]},
    "dots1": {"n_shared_experts": 1},
    "ernie4_5_vl_moe_text": {"moe_intermediate_size": [48, 48], "rope_parameters": _ROPE},
    "flint": {"mlp_only_layers": [0]},
    "gemma4_text": {"enable_moe_block": True},
    "glm4v_moe_text": {"head_dim": 16, "rope_parameters": _ROPE},
    "glm5_next_text": {"qk_rope_head_dim": 0},
    "granitemoehybrid": {"layer_types": _HYBRID, "mamba_n_heads": 8, "mamba_d_head": 8},
    "hy_v4_vl_text": {"rope_parameters": _ROPE},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 1, "expert_layer_offset": 0},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "full_attention"], "num_dense_layers": 1},
    "mistral4": {"head_dim": 16},
    "nemotron_h": {"layers_block_type": ["moe", "full_attention", "moe"]},
    "qwen4_exp_text": {"layer_types": _HYBRID} | _QSA,
    "step3p5": {"sliding_window": 4, "mlp_layer_types": ["dense", "sparse", "sparse"]},
    "zaya": {"num_experts_per_tok": 1},
}


def tiny_models() -> Iterator[tuple[str, Callable[[], TinyModel]]]:
    """Every type, sorted by name, with a function that makes its model and inputs: the same each time, in eval mode."""
    for model_type in expert_parallel_types():
        if model_type not in LEFT_OUT:
            yield model_type, partial(make, model_type)


def expert_parallel_types() -> list[str]:
    """The model types that transformers has an expert-parallel plan for."""
    return [name for name in sorted(CONFIG_MAPPING.keys()) if _dispatches_experts(CONFIG_MAPPING[name])]


def make(model_type: str, **sizes: Any) -> TinyModel:
    """Makes the model and inputs of one type; `sizes` replace settings of its config."""
    config = tiny_config(model_type, **sizes)
    torch.manual_seed(0)
    model = _model_class(type(config))(config).eval()
    return model, {"input_ids": torch.randint(1, VOCABULARY, (BATCH, LENGTH))}


def tiny_config(model_type: str, **sizes: Any) -> PreTrainedConfig:
    """The config of a tiny model."""
    config_class = CONFIG_MAPPING[model_type]
    usual = vars(config_class())
    chosen: dict[str, Any] = {name: size for name, size in _SIZES.items() if usual.get(name) is not None}
    chosen |= {name: size for name, size in _SIZES_OF_EXPERTS.items() if name in usual}
    chosen |= {name: 48 for name, size in usual.items() if name.endswith("intermediate_size") and size is not None}
    chosen["pad_token_id"] = 0
    if usual.get("layer_types"):  # use each kind of attention once, if there are enough layers
        kinds = list(dict.fromkeys(usual["layer_types"]))
        chosen["layer_types"] = (kinds * LAYERS)[:LAYERS]
    if usual.get("num_key_value_heads") == usual["num_attention_heads"] and "num_key_value_heads" in chosen:
        chosen["num_key_value_heads"] = chosen["num_attention_heads"]
    return config_class(**chosen | _SIZES_OF_TYPE.get(model_type, {}) | sizes)


def _dispatches_experts(config_class: type[PreTrainedConfig]) -> bool:
    return "ep_dispatch_experts" in (config_class.base_model_ep_plan or {}).values()


def _model_class(config_class: type[PreTrainedConfig]) -> type[PreTrainedModel]:
    """The config's causal language model if there is one, else its model without a head."""
    module = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    classes = [
        found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, PreTrainedModel) and found.config_class is config_class
    ]
    for ending in ("ForCausalLM", "Model"):
        for found in classes:
            if found.__name__.endswith(ending) and not found.__name__.endswith("PreTrainedModel"):
                return found
    raise LookupError(f"{module.__name__} has no model of {config_class.__name__}")


class Routers:
    """Records in call order what routers choose by topk (k of `experts`), or makes them choose `forced`."""

    def __init__(self, forced: torch.Tensor | None = None, experts: int = EXPERTS, k: int = TOP_K) -> None:
        self.forced, self.of, self.chosen = forced, (2, experts, k), list[torch.Tensor]()

    def top_k(self, scores: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        made = _topk(scores, k, dim, largest, sorted)
        if (scores.dim(), scores.shape[-1], k) != self.of:  # scores with three dimensions are groups of experts
            return made
        if self.forced is not None:
            ids = self.forced[:, len(self.chosen)].view(made.indices.shape)
            made = torch.return_types.topk((scores.gather(-1, ids), ids))  # type: ignore[attr-defined]
        self.chosen.append(made.indices.reshape(-1, k))
        return made

    def __enter__(self) -> Routers:
        method = lambda scores, *more, **named: self.top_k(scores, *more, **named)  # noqa: E731  # binds to a tensor
        self.patches = [mock.patch("torch.topk", self.top_k), mock.patch("torch.Tensor.topk", method)]
        for patch in self.patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self.patches:
            patch.stop()


_topk = torch.topk
