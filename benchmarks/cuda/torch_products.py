"""Times torch's grouped product on the cases of products_benchmark, to compare with that program's forward pass.

usage: torch_products.py CASES.json OUT.json
"""

import json
import statistics
import sys

import torch

REPEATS = 20
GATED = 2  # swiglu: gate and up


def shares(skew, groups):
    if skew == "even" or groups == 1:
        return [1.0 / groups] * groups
    if skew == "hot95":
        return [0.95] + [0.05 / (groups - 1)] * (groups - 1)
    if skew == "zipf":
        total = sum(1.0 / (i + 1) for i in range(groups))
        return [1.0 / (i + 1) / total for i in range(groups)]
    raise SystemExit(f"skew {skew!r} is none of even, hot95, zipf")


def ends(case):
    running, result = 0.0, []
    for share in shares(case["skew"], case["groups"]):
        running += share
        result.append(int(case["positions"] * running + 0.5))
    result[-1] = case["positions"]
    return result


def grouped_product():
    """Torch's own grouped product, whichever name this version has for it."""
    for home, name in ((torch.nn.functional, "grouped_mm"), (torch, "_grouped_mm")):
        if hasattr(home, name):
            return getattr(home, name)
    raise SystemExit(f"torch {torch.__version__} has no grouped product")


def milliseconds(run):
    for _ in range(3):
        run()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return times


def measure(case, product):
    hidden, inner, groups = case["hidden"], case["intermediate"], case["groups"]
    options = {"device": "cuda", "dtype": torch.bfloat16}
    rows = torch.randn(case["positions"], hidden, **options)
    gate_up = torch.randn(groups, GATED * inner, hidden, **options).mul_(hidden**-0.5)
    down = torch.randn(groups, hidden, inner, **options).mul_(inner**-0.5)
    offsets = torch.tensor(ends(case), device="cuda", dtype=torch.int32)

    def products():
        both = product(rows, gate_up.transpose(1, 2), offs=offsets)
        return product(both[:, :inner].contiguous(), down.transpose(1, 2), offs=offsets)

    def forward():
        gate, up = product(rows, gate_up.transpose(1, 2), offs=offsets).chunk(2, dim=1)
        return product(torch.nn.functional.silu(gate) * up, down.transpose(1, 2), offs=offsets)

    flop = 2.0 * case["positions"] * hidden * inner * (GATED + 1)
    result = dict(case)
    for name, run in (("products", products), ("forward", forward)):
        times = sorted(milliseconds(run))
        result[name] = {
            "tflops": flop / statistics.median(times) / 1e9,
            "milliseconds": statistics.median(times),
            "least_milliseconds": times[0],
            "most_milliseconds": times[-1],
        }
    return result


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU")
    with open(sys.argv[1]) as file:
        cases = json.load(file)["cases"]
    product = grouped_product()
    figures = {
        "benchmark": "torch_products",
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "cases": [measure(case, product) for case in cases],
    }
    with open(sys.argv[2], "w") as file:
        json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
