"""The layers with experts that are read from a config.json, against those that transformers' own classes build.

    tools/peers.sh && python3 tests/peers/model_layers_test.py BUILD/bin/print_model_layers

Every model type of the installed transformers whose config speaks of experts is built on the meta device, where it takes
no memory: by its defaults, cut to a few layers, and with the options below. The config that transformers itself saves is
then read. What a class cannot build, or has experts of another kind than a layer's, is listed and left out.
"""

import json
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import peer

peer.require("torch", "transformers")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # noqa: E402

COMMAND = sys.argv[1]
# A layer's routed experts: parameters or modules of this name inside a numbered layer.
EXPERTS = re.compile(r"(?:^|\.)(?:layers|blocks)\.(\d+)\.(?:.*\.)?(?:experts|block_sparse_moe|moe)\b")
LISTED = ["dense", "sparse", "dense", "sparse", "sparse", "sparse"]
# Rules that no default makes use of; the layers that have experts differ from all others of the type.
OPTIONS = [
    ("qwen3_moe", {"num_hidden_layers": 9, "decoder_sparse_step": 2, "mlp_only_layers": [3]}),
    ("qwen2_moe", {"num_hidden_layers": 7, "decoder_sparse_step": 3, "mlp_only_layers": []}),
    ("qwen3_next", {"num_hidden_layers": 8, "decoder_sparse_step": 1, "mlp_only_layers": [0, 5]}),
    ("llama4_text", {"num_hidden_layers": 8, "interleave_moe_layer_step": 2}),
    ("jamba", {"num_hidden_layers": 10, "expert_layer_period": 3, "expert_layer_offset": 2}),
    ("ernie4_5_moe", {"num_hidden_layers": 10, "moe_layer_start_index": 2, "moe_layer_end_index": 7}),
    ("ernie4_5_moe", {"num_hidden_layers": 10, "moe_layer_start_index": 1, "moe_layer_interval": 3}),
    ("ernie4_5_moe", {"num_hidden_layers": 10, "moe_layer_end_index": -1}),
    ("deepseek_v2", {"num_hidden_layers": 6, "first_k_dense_replace": 1}),
    ("deepseek_v3", {"num_hidden_layers": 9, "first_k_dense_replace": 5}),
    ("dots1", {"num_hidden_layers": 6, "first_k_dense_replace": 2, "n_routed_experts": 8, "n_shared_experts": 1}),
    ("glm4_moe", {"num_hidden_layers": 6, "first_k_dense_replace": 4}),
    ("glm4_moe_lite", {"num_hidden_layers": 6, "mlp_layer_types": LISTED}),
    ("mimo_v2_flash", {"num_hidden_layers": 6, "mlp_layer_types": LISTED}),
    ("laguna", {"num_hidden_layers": 6, "mlp_layer_types": LISTED}),
    ("afmoe", {"num_hidden_layers": 8, "num_dense_layers": 3}),
    ("lfm2_moe", {"num_hidden_layers": 6, "num_dense_layers": 1, "layer_types": ["conv"] * 3 + ["full_attention"] * 3}),
    ("nemotron_h", {"hybrid_override_pattern": "MEM*E-ME"}),
]


def language_config(config):
    """The config of the language model, alone or inside another."""
    inner = config.get_text_config(decoder=True)
    return inner if inner is not None else config


def experts_by_class(config):
    """The numbers of the layers in which the class of the language model builds experts."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModel.from_config(config)
    layers = set()
    for name, _ in list(model.named_parameters()) + list(model.named_modules()):
        found = EXPERTS.search(name)
        if found and "vision" not in name and "visual" not in name:
            layers.add(int(found.group(1)))
    return sorted(layers)


def cases():
    for model_type in sorted(CONFIG_MAPPING_NAMES):
        yield model_type, {}
        yield model_type, {"num_hidden_layers": 6}
    yield from OPTIONS


def make(model_type, options):
    config = transformers.AutoConfig.for_model(model_type, **options)
    text = language_config(config)
    if "expert" not in json.dumps(text.to_dict(), default=str):
        return None
    return text


def main():
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    asked, left_out, wrong, refused, seen = 0, [], [], [], set()
    with tempfile.TemporaryDirectory() as folder:
        for model_type, options in cases():
            label = f"{model_type} {options or ''}".strip()
            try:
                config = make(model_type, options)
                if config is None or config.to_json_string(use_diff=False) in seen:
                    continue
                seen.add(config.to_json_string(use_diff=False))
                expected = experts_by_class(config)
                config.save_pretrained(folder)
            except Exception as error:  # noqa: BLE001 (a class that cannot be built here)
                left_out.append(f"{label}: {str(error).splitlines()[0][:100] if str(error) else type(error).__name__}")
                continue
            done = subprocess.run([COMMAND, folder], capture_output=True, text=True, check=True)
            answer = json.loads(done.stdout)
            asked += 1
            if "error" in answer:
                none = not expected or config.is_encoder_decoder
                (refused if none else wrong).append(f"{label}: {expected} by the class; {answer['error']}")
            elif answer["moe_layers"] != expected or answer["num_hidden_layers"] <= max(expected):
                wrong.append(f"{label}: {expected} by the class; read {answer}")
            Path(folder, "config.json").unlink()
    for line in left_out:
        print(f"left out: {line}")
    for line in refused:
        print(f"refused, as it has no experts or an encoder: {line}")
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"{asked - len(wrong)} of {asked} configs are read as transformers {transformers.__version__} builds them")
    return 1 if wrong or asked < len(OPTIONS) else 0


if __name__ == "__main__":
    sys.exit(main())
