"""The layers with experts that evenkeel reads from a config.json, against those that transformers' classes build.

    tools/peers.sh && python3 tests/peers/model_layers_test.py BUILD/bin/print_model_layers

Covers every model type of the installed transformers whose config mentions experts. Each is built on the meta device,
where it takes no memory: with its defaults, reduced to a few layers, and with the options below. evenkeel then reads
the config that transformers saves. Types are listed and left out if their class cannot be built, or if their experts are
not those of a layer.
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
# Rules that no default uses. Each setting changes which layers have experts.
OPTIONS = [
    ("qwen3_moe", {"num_hidden_layers": 9, "decoder_sparse_step": 2, "mlp_only_layers": [3]}),
    ("qwen3_next", {"num_hidden_layers": 8, "decoder_sparse_step": 1, "mlp_only_layers": [0, 5]}),
    ("llama4_text", {"num_hidden_layers": 8, "interleave_moe_layer_step": 2}),
    ("jamba", {"num_hidden_layers": 10, "expert_layer_period": 3, "expert_layer_offset": 2}),
    ("ernie4_5_moe", {"num_hidden_layers": 10, "moe_layer_start_index": 2, "moe_layer_end_index": 7}),
    ("ernie4_5_moe", {"num_hidden_layers": 10, "moe_layer_start_index": 1, "moe_layer_interval": 3}),
    ("ernie4_5_moe", {"num_hidden_layers": 10, "moe_layer_end_index": -1}),
    ("deepseek_v3", {"num_hidden_layers": 9, "first_k_dense_replace": 5}),
    ("dots1", {"num_hidden_layers": 6, "first_k_dense_replace": 2, "n_routed_experts": 8, "n_shared_experts": 1}),
    ("glm4_moe_lite", {"num_hidden_layers": 6, "mlp_layer_types": LISTED}),
    ("afmoe", {"num_hidden_layers": 8, "num_dense_layers": 3}),
    ("nemotron_h", {"hybrid_override_pattern": "MEM*E-ME"}),
]


def cases():
    for model_type in sorted(CONFIG_MAPPING_NAMES):
        yield model_type, {}
        yield model_type, {"num_hidden_layers": 6}
    yield from OPTIONS


def language_config(model_type, options):
    """The config of the language model, alone or inside another config."""
    config = transformers.AutoConfig.for_model(model_type, **options)
    inner = config.get_text_config(decoder=True)
    return inner if inner is not None else config


def experts_by_class(config):
    """The numbers of the layers in which the language model's class builds experts."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModel.from_config(config)
    names = [name for name, _ in [*model.named_parameters(), *model.named_modules()]]
    found = [EXPERTS.search(name) for name in names if "vision" not in name and "visual" not in name]
    return sorted({int(each.group(1)) for each in found if each})


def main():
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    asked, wrong, seen = 0, 0, set()
    with tempfile.TemporaryDirectory() as folder:
        for model_type, options in cases():
            label = f"{model_type} {options or ''}".strip()
            try:
                config = language_config(model_type, options)
                text = config.to_json_string(use_diff=False)
                if "expert" not in json.dumps(config.to_dict(), default=str) or text in seen:
                    continue
                seen.add(text)
                expected = experts_by_class(config)
                config.save_pretrained(folder)
            except Exception as error:  # noqa: BLE001 (the class cannot be built here)
                print(f"left out: {label}: {(str(error) or type(error).__name__).splitlines()[0][:100]}")
                continue
            done = subprocess.run([COMMAND, folder], capture_output=True, text=True, check=True)
            answer = json.loads(done.stdout)
            asked += 1
            if "error" in answer:
                right = not expected or config.is_encoder_decoder
            else:
                right = answer["moe_layers"] == expected and answer["num_hidden_layers"] > max(expected)
            if not right or "error" in answer:
                print(f"{'refused' if right else 'WRONG'}: {label}: {expected} by the class; {answer}")
            wrong += not right
            Path(folder, "config.json").unlink()
    print(f"{asked - wrong} of {asked} configs are read as transformers {transformers.__version__} builds them")
    return 1 if wrong or asked < len(OPTIONS) else 0


if __name__ == "__main__":
    sys.exit(main())
