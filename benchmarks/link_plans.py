"""The bytes that level's plans send between nodes, and the predicted time of their steps.

    python3 benchmarks/link_plans.py build/release/bin/evenkeel tests/data/configs/gpt-oss-20b.json [topk_ids.npz]

Links across nodes are as fast as those within, a quarter as fast, or a tenth. Covers the shipped scenarios, and a
recording of token ids if one is given.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

PER_NODE, TOKENS, TOP_K, EXPERTS = 8, 4096, 4, 32  # TOKENS: those of each rank
WITHIN = 450  # GB/s


def concentrated(share, hot, ranks):
    """Counts by rank: the `share` of the assignments goes to the hot experts, the rest evenly to the others."""
    draw = random.Random(1)
    rows = []
    for _ in range(ranks):
        row = [0] * EXPERTS
        for _ in range(TOKENS * TOP_K):
            row[draw.randrange(hot) if draw.random() < share else draw.randrange(hot, EXPERTS)] += 1
        rows.append(row)
    return rows


def recorded(path, layer, ranks):
    import numpy

    ids = numpy.load(path)["topk_ids"][:, layer]
    ids = numpy.resize(ids, (ranks, TOKENS, TOP_K))  # a recording that is too short is repeated
    return [numpy.bincount(of_rank.ravel(), minlength=EXPERTS).tolist() for of_rank in ids]


def main():
    command, model, *recording = sys.argv[1:]
    config = json.loads(pathlib.Path(model).read_text(encoding="utf-8")) | {"torch_dtype": "bfloat16"}
    print(f"{'routing':<16}nodes  links    plain ep  links alike       level  MiB across: links alike  level")
    for nodes in [2, 8]:
        ranks = nodes * PER_NODE
        steps = {f"{share:.0%} into {hot}": concentrated(share, hot, ranks)
                 for share in [0.3, 0.6, 0.95] for hot in [1, 4]}  # fmt: skip
        for path in recording:
            for layer in [0, 12, 23]:
                steps[f"layer {layer}"] = recorded(path, layer, ranks)
        for name, counts in steps.items():
            for slower in [1, 4, 10]:
                with tempfile.TemporaryDirectory() as folder:
                    loads, links, sizes = (
                        pathlib.Path(folder, f"{name}.json") for name in ["counts", "links", "config"]
                    )
                    sizes.write_text(json.dumps(config), encoding="utf-8")
                    loads.write_text(json.dumps({"counts": counts}), encoding="utf-8")
                    links.write_text(json.dumps({
                        "format": "evenkeel.topology.v1", "num_nodes": nodes, "ranks_per_node": PER_NODE,
                        "within": {"gigabytes_per_s": WITHIN}, "across": {"gigabytes_per_s": WITHIN / slower}}),
                        encoding="utf-8")  # fmt: skip
                    plan = json.loads(subprocess.check_output(
                        [command, "plan", loads, "--topology", links, "--model", sizes, "--device", "h100",
                         "--planner", "level", "--imbalance-threshold", "0", "--json"]))  # fmt: skip
                ep, level = plan["predicted_under_ep"], plan["predicted"]
                alike = plan.get("predicted_without_links", level)
                print(f"{name:<16}{nodes:>5}  1:{slower:<3}"
                      + "".join(f"{1e3 * each['seconds']:>10.2f} ms" for each in [ep, alike, level])
                      + f"{alike['weight_bytes_across'] / 2**20:>25.0f}"
                      + f"{level['weight_bytes_across'] / 2**20:>7.0f}")  # fmt: skip


main()
