"""Tiny random models of every MoE model type of transformers, from the table of families (docs/families.md).

Each model is saved in the Hub's layout and in transformers' in-memory layout. `evenkeel permute` renumbers its experts,
and both checkpoints are loaded again: the logits are equal, and differ with the routers' old rows. `evenkeel memory`
must count exactly as many weights as there are.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_models import EXPERTS, LEFT_OUT, VOCABULARY, expert_parallel_types, make, tiny_config
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText, PreTrainedModel

COMMAND = os.environ.get("EVENKEEL_COMMAND", "build/release/bin/evenkeel")
RANKS, GROUPS = 4, 4
# Logits are between about 1 and 10, and float32 has 24 bits.
ALLOWED = 1e-3

# Types that transformers has no expert-parallel plan for.
MORE_TYPES = ["llama4_text"]
NOT_PERMUTED = {
    "ernie4_5_vl_moe_text": "experts for text and others for images",
}
NOT_LOADED = {"inkling2_loop_text", "lara_mini"}
"""Types whose Hub layout transformers 5.24 saves but cannot load again."""

# Models of text and images around a language model, and the sizes that make their image tower small.
WRAPPERS = {
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "gemma4": "gemma4_text",
    "kimi_k25": "deepseek_v3",
    "glm4v_moe": "glm4v_moe_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "aria": "aria_text",
    "mistral_large4": "mistral_large4_text",
}
TOWER = {
    "hidden_size": 32,
    "depth": 1,
    "num_hidden_layers": 1,
    "num_heads": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "global_head_dim": 8,
    "intermediate_size": 48,
    "out_hidden_size": 32,
    "deepstack_visual_indexes": [0],
    "num_position_embeddings": 16,
}

# Sizes and switches, besides the tiny sizes, with which a type's weights are counted. No two sizes of a model are
# equal, so that one term cannot hide an error in another. The second entry turns every switch.
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 10, "linear_value_head_dim": 14}
WIDE = {"hidden_size_per_layer_input": 0, "moe_intermediate_size": 20, "top_k_experts": 2}
LATENT = {"kv_lora_rank": 12, "qk_rope_head_dim": 8, "qk_nope_head_dim": 10, "v_head_dim": 14, "q_lora_rank": 20}
COUNTED: dict[str, list[dict[str, Any]]] = {
    "mixtral": [{}, {"tie_word_embeddings": True}],
    "minimax_m2": [{}, {"tie_word_embeddings": True}],
    "phimoe": [{}, {"attention_bias": True, "lm_head_bias": True}],
    "qwen2_moe": [{"shared_expert_intermediate_size": 28, "moe_intermediate_size": 20}, {"qkv_bias": False}],
    "qwen3_moe": [{"moe_intermediate_size": 20}, {"attention_bias": True, "mlp_only_layers": [1]}],
    "qwen3_vl_moe_text": [{"moe_intermediate_size": 20}, {"attention_bias": True}],
    "qwen3_next": [DELTA | {"shared_expert_intermediate_size": 28}, DELTA | {"attention_bias": True}],
    "qwen3_5_moe_text": [DELTA | {"shared_expert_intermediate_size": 28}, DELTA | {"tie_word_embeddings": True}],
    "olmoe": [{}, {"attention_bias": True}],
    "flex_olmo": [{}, {"attention_bias": True}],
    "deepseek_v2": [LATENT, LATENT | {"n_shared_experts": 3, "attention_bias": True, "q_lora_rank": None}],
    "deepseek_v3": [LATENT, LATENT | {"n_shared_experts": 3, "attention_bias": True, "q_lora_rank": None}],
    "deepseek_v32": [LATENT | {"index_head_dim": 22}, LATENT | {"attention_bias": True, "n_shared_experts": 3}],
    "glm4_moe": [{"moe_intermediate_size": 20}, {"attention_bias": True, "use_qk_norm": True, "n_shared_experts": 2}],
    "glm4_moe_lite": [LATENT | {"moe_intermediate_size": 20}, LATENT | {"attention_bias": True}],
    "glm_moe_dsa": [LATENT | {"index_head_dim": 22}, LATENT | {"indexer_types": ["full", "shared", "full"]}],
    "solar_open": [{"moe_intermediate_size": 20}, {"attention_bias": True, "n_shared_experts": 2}],
    "gpt_oss": [{}, {"attention_bias": False}],
    "llama4_text": [
        {"intermediate_size": 20},
        {"interleave_moe_layer_step": 2, "moe_layers": None, "attention_bias": True},
    ],
    "gemma4_text": [WIDE, WIDE | {"attention_bias": True, "attention_k_eq_v": True, "num_global_key_value_heads": 1}],
    "granitemoe": [{}, {"attention_bias": True, "tie_word_embeddings": True}],
    "granitemoeshared": [{"shared_intermediate_size": 26}, {"attention_bias": True}],
    "ernie4_5_moe": [{"moe_intermediate_size": 20}, {"moe_num_shared_experts": 3, "tie_word_embeddings": False}],
    "hunyuan_v1_moe": [{}, {"attention_bias": True}],
}

transformers.logging.set_verbosity(transformers.logging.CRITICAL)
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)


def all_types() -> list[str]:
    return [name for name in [*expert_parallel_types(), *MORE_TYPES] if name not in LEFT_OUT]


def randomize(model: PreTrainedModel) -> None:
    """Sets random weights, so that experts differ clearly and the routers' biases affect the choice."""
    torch.manual_seed(7)
    for name, tensor in model.state_dict().items():
        if "tid2eid" in name:
            tensor.copy_(torch.randint(0, EXPERTS, tensor.shape))
        elif (
            re.search(r"expert|router|gate\.|input_linear|output_linear|correction", name)
            and tensor.is_floating_point()
        ):
            tensor.normal_(std=0.3)


def forward(model: PreTrainedModel) -> torch.Tensor:
    ids = torch.randint(1, VOCABULARY, (3, 20), generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        return torch.as_tensor(model(input_ids=ids)[0])


def load(model: PreTrainedModel, folder: Path) -> torch.Tensor:
    return forward(type(model).from_pretrained(folder, dtype=torch.float32).eval())


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for path in folder.glob("*.safetensors"):
        found |= load_file(path)
    return found


def layers_with_experts(names: Iterator[str] | dict[str, Any]) -> list[int]:
    layers = set()
    for name in names:
        found = re.search(r"\b(?:layers|blocks)\.(\d+)\.(?:\w+\.)?(?:experts\.|input_linear)", name)
        if found and "shared" not in name:
            layers.add(int(found.group(1)))
    return sorted(layers)


def write_placement(path: Path, layers: list[int], groups: int = 1) -> None:
    """A random order of experts for each layer, in which groups stay whole."""
    chance = random.Random(path.name)
    size = EXPERTS // groups
    orders = []
    for _ in layers:
        order: list[int] = []
        for group in chance.sample(range(groups), groups):
            order += chance.sample(range(group * size, (group + 1) * size), size)
        orders.append(order)
    placement = {"format": "evenkeel.placement.v1", "num_layers": len(layers), "num_experts": EXPERTS}
    placement |= {"num_ranks": RANKS, "physical_to_logical": orders, "layers": layers}
    path.write_text(json.dumps(placement), encoding="utf-8")


def run(*words: object) -> dict[str, Any]:
    done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer | {"status": done.returncode}


def put_old_routers_back(before: Path, after: Path) -> int:
    """Restores the old tensors of a permuted checkpoint, except expert weights. Returns the number of tensors restored."""
    old, count = tensors_in(before), 0
    for path in after.glob("*.safetensors"):
        held = load_file(path)
        for name, tensor in held.items():
            experts = re.search(r"experts\.(?!e_score)|input_linear|output_linear", name)
            if not experts and not torch.equal(tensor, old[name]):
                held[name] = old[name]
                count += 1
        save_file(held, path, {"format": "pt"})
    return count


def wrapped(model_type: str) -> PreTrainedModel:
    usual = CONFIG_MAPPING[model_type]()
    parts: dict[str, Any] = {"vision_config": None}
    if usual.vision_config is not None:
        tower = {name: size for name, size in TOWER.items() if name in vars(usual.vision_config)}
        parts["vision_config"] = tower | {"model_type": usual.vision_config.model_type}
    if hasattr(usual, "audio_config"):
        parts["audio_config"] = None
    config = CONFIG_MAPPING[model_type](text_config=tiny_config(WRAPPERS[model_type]).to_dict(), **parts)
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForImageTextToText.from_config(config).eval()
    return model


class FamiliesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def permuted(self, model: PreTrainedModel, name: str, groups: int = 1, **saving: Any) -> tuple[Path, Path]:
        before, after = self.folder / f"{name}.before", self.folder / f"{name}.after"
        model.save_pretrained(before, **saving)
        placement = self.folder / f"{name}.json"
        write_placement(placement, layers_with_experts(tensors_in(before)), groups)
        done = run("permute", before, "--placement", placement, "-o", after)
        self.assertEqual(done["status"], 0, done.get("error"))
        return before, after

    def check_logits(
        self, model: PreTrainedModel, name: str, groups: int = 1, known: torch.Tensor | None = None, **saving: Any
    ) -> torch.Tensor:
        """Returns the logits. Unless they are `known`, also checks that the old routers would change them."""
        before, after = self.permuted(model, name, groups, **saving)
        wanted = load(model, before) if known is None else known
        self.assertGreater(float(wanted.std()), 1e-3)
        near = ALLOWED * float(wanted.abs().max())
        self.assertLess(float((load(model, after) - wanted).abs().max()), near)
        if known is None:
            self.assertGreater(put_old_routers_back(before, after), 0)
            self.assertGreater(float((load(model, after) - wanted).abs().max()), 10 * near)
        return wanted

    def test_every_type_gives_the_same_logits_in_both_layouts(self) -> None:
        passed = 0
        for model_type in all_types():
            if model_type in NOT_PERMUTED:
                continue
            model, _ = make(model_type)
            randomize(model)
            wanted = None
            for layout, saving in [("hub", {}), ("memory", {"save_original_format": False})]:
                if layout == "hub" and model_type in NOT_LOADED:
                    continue
                with self.subTest(model_type=model_type, layout=layout):
                    wanted = self.check_logits(model, f"{model_type}.{layout}", known=wanted, **saving)
                    passed += 1
        print(f"{passed} checkpoints of {len(all_types())} types", file=sys.stderr)
        self.assertGreaterEqual(passed, 2 * 60)

    def test_models_of_text_and_images_give_the_same_logits(self) -> None:
        for model_type in WRAPPERS:
            with self.subTest(model_type=model_type):
                model = wrapped(model_type)
                randomize(model)
                self.check_logits(model, model_type)

    def test_groups_stay_whole_or_the_placement_is_refused(self) -> None:
        grouped = 0
        for model_type in all_types():
            usual = vars(CONFIG_MAPPING[model_type]())
            key = next((key for key in ("n_group", "num_expert_group") if key in usual), None)
            if key is None or model_type in NOT_PERMUTED:
                continue
            sizes: dict[str, Any] = {key: GROUPS, "topk_group": 2}
            if "topk_method" in usual:
                sizes["topk_method"] = "group_limited_greedy"
            with self.subTest(model_type=model_type):
                model, _ = make(model_type, **sizes)
                randomize(model)
                self.check_logits(model, model_type, groups=GROUPS)
                apart = self.folder / "apart.json"
                write_placement(apart, layers_with_experts(tensors_in(self.folder / f"{model_type}.before")))
                done = run(
                    "permute", self.folder / f"{model_type}.before", "--placement", apart, "-o", self.folder / "no"
                )
                self.assertEqual(done["error"]["type"], "Infeasible")
                grouped += 1
        self.assertGreaterEqual(grouped, 15)

    def test_what_cannot_be_permuted_is_refused_with_the_reason(self) -> None:
        for model_type, reason in NOT_PERMUTED.items():
            with self.subTest(model_type=model_type):
                before = self.folder / model_type
                make(model_type)[0].save_pretrained(before)
                write_placement(self.folder / "placement.json", [0, 1, 2])
                done = run("permute", before, "--placement", self.folder / "placement.json", "-o", self.folder / "no")
                self.assertEqual(done["error"]["type"], "Unsupported")
                self.assertIn(reason, done["error"]["message"])

    def test_weights_are_counted_to_the_last(self) -> None:
        for model_type, variants in COUNTED.items():
            for sizes in variants:
                with self.subTest(model_type=model_type, sizes=sizes):
                    model, _ = make(model_type, **sizes)
                    self.check_counts(model, model.config)

    def test_weights_of_a_language_model_inside_another_are_counted(self) -> None:
        for model_type in ("qwen3_vl_moe", "qwen3_5_moe", "kimi_k25"):
            with self.subTest(model_type=model_type):
                model = wrapped(model_type)
                self.check_counts(model, model.config, r"language_model|lm_head")

    def check_counts(self, model: PreTrainedModel, config: Any, of: str = "") -> None:
        # Tables of expert ids are not counted as weights.
        held = model.state_dict().items()
        parts = {name: tensor for name, tensor in held if re.search(of, name) and "tid2eid" not in name}
        sizes = {tensor.data_ptr(): tensor.numel() for tensor in parts.values() if tensor.numel() > 0}
        total = sum(sizes.values())
        text = config.get_text_config()
        has_head = any("lm_head" in name for name in parts)
        if not has_head and not text.tie_word_embeddings:
            total += text.vocab_size * text.hidden_size
        experts = sum(tensor.numel() for name, tensor in parts.items() if re.search(r"\.experts\.(?!e_score)", name))
        config.save_pretrained(self.folder)
        # No data type has one byte, so no products are timed for the layer's budget.
        counted = run("memory", "--model", self.folder / "config.json", "--bytes", "activation=1")
        self.assertEqual(counted["status"], 0, counted.get("error"))
        self.assertEqual(counted["model"]["parameters"], total)
        self.assertEqual(counted["model"]["expert_parameters"], experts)


if __name__ == "__main__":
    unittest.main()
