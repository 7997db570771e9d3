"""Counts anew what tests/data/model_parameters.json says: how many numbers tiny models of transformers have, by kind.

    tools/peers.sh && python3 tests/peers/parameter_counts.py

The file has the models' configs, of which no two sizes are equal, so that no term can stand in for another.
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


def counts_of(model):
    counts, seen = {}, set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in seen:  # tied
            continue
        seen.add(tensor.data_ptr())
        counts[kind_of(name)] = counts.get(kind_of(name), 0) + tensor.numel()
    return counts | {"total": sum(counts.values())}


def main():
    transformers.logging.set_verbosity_error()
    file = json.loads(FILE.read_text(encoding="utf-8"))
    for entry in file["models"].values():
        config = transformers.AutoConfig.for_model(**entry["config"])
        entry["counts"] = counts_of(transformers.AutoModelForCausalLM.from_config(config))
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    file["source"] = f"{versions}, by tests/peers/parameter_counts.py"
    FILE.write_text(json.dumps(file, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
