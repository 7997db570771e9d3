"""Checkpoints saved by transformers, permuted, and loaded again: the model's results are the same to the bit.

    tools/peers.sh && python3 tests/peers/permuted_checkpoints_test.py build/release/bin/evenkeel [--table]

--table prints the largest difference of logits for every family, top-k and type, as in docs/checkpoints.md.
"""

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import peer

peer.require("torch", "transformers")

import torch  # noqa: E402
import transformers  # noqa: E402

TABLE = "--table" in sys.argv
COMMAND = Path(
    next((word for word in sys.argv[1:] if not word.startswith("-")), "build/release/bin/evenkeel")
).resolve()
EXPERTS, RANKS, GROUPS = 16, 4, 4
SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,  # so that experts differ by more than noise
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# Each family's class name, its config, and the number of layers with experts.
FAMILIES = {
    "mixtral": ("Mixtral", {"intermediate_size": 48, "num_hidden_layers": 2, "num_local_experts": EXPERTS}, 2),
    "qwen3_moe": (
        "Qwen3Moe",
        {"intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 3, "num_experts": EXPERTS}
        | {"head_dim": 8, "mlp_only_layers": [1], "norm_topk_prob": True},
        2,
    ),
    "olmoe": ("Olmoe", {"intermediate_size": 24, "num_hidden_layers": 2, "num_experts": EXPERTS}, 2),
    "deepseek_v3": (
        "DeepseekV3",
        {"intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 3, "n_routed_experts": EXPERTS}
        | {"n_group": GROUPS, "topk_group": 2, "first_k_dense_replace": 1, "num_key_value_heads": 4}
        | {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
        2,
    ),
    "gpt_oss": (
        "GptOss",
        {"intermediate_size": 32, "num_hidden_layers": 2, "num_local_experts": EXPERTS, "head_dim": 8},
        2,
    ),
}
SEVERAL = (3, 40)  # tokens: number of sequences, and their length
ONE_EACH = (97, 1)  # tokens cannot attend to each other

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)


def save_model(family, folder, top_k, dtype):
    name, config, _ = FAMILIES[family]
    torch.manual_seed(5)
    config = getattr(transformers, name + "Config")(**(SIZES | config | {"num_experts_per_tok": top_k}))
    model = getattr(transformers, name + "ForCausalLM")(config)
    for tensor, values in model.state_dict().items():
        if tensor.endswith(("e_score_correction_bias", "router.bias")):
            values.normal_(std=0.3)
    model.to(dtype).save_pretrained(folder, max_shard_size="30KB")


def load(folder, dtype=torch.float32, experts=None):
    options = {"experts_implementation": experts} if experts else {}
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **options).eval()


def logits(folder, dtype=torch.float32, experts=None, tokens=SEVERAL):
    ids = torch.randint(0, SIZES["vocab_size"], tokens, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        return load(folder, dtype, experts)(ids).logits


@contextlib.contextmanager
def order_free_softmax():
    """Replaces softmax over experts by one summed in float64 and rounded once, in which order has no effect."""
    softmax = torch.nn.functional.softmax

    def free(values, dim=None, dtype=None, **options):
        if values.shape[-1] != EXPERTS:
            return softmax(values, dim=dim, dtype=dtype, **options)
        return softmax(values.double(), dim=dim).to(dtype or values.dtype)

    torch.nn.functional.softmax = free
    try:
        yield
    finally:
        torch.nn.functional.softmax = softmax


def tied_tokens(folder, dtype, tokens):
    """Tokens with tied router logits at the boundary of the top-k in some layer: one of the two is chosen."""
    model = load(folder, dtype)
    tied = torch.zeros(tokens[0] * tokens[1], dtype=torch.bool)

    def look(router, inputs):
        rows = inputs[0].reshape(-1, SIZES["hidden_size"]).to(router.weight.dtype)
        found = torch.nn.functional.linear(rows, router.weight, getattr(router, "bias", None))
        ranked = found.sort(dim=-1, descending=True).values
        k = model.config.num_experts_per_tok
        tied.logical_or_(ranked[:, k - 1] == ranked[:, k])

    for name, module in model.named_modules():
        if name.endswith((".gate", ".router")):
            module.register_forward_pre_hook(look)
    ids = torch.randint(0, SIZES["vocab_size"], tokens, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        model(ids)
    return tied


def rows_keep_their_bits():
    """Whether a matrix product on this machine gives a router row's scores the same bits at any position of the row."""
    rows, order = torch.randn(EXPERTS, SIZES["hidden_size"]), torch.randperm(EXPERTS)
    hidden = torch.randn(120, SIZES["hidden_size"])
    return torch.equal((hidden @ rows.T)[:, order], hidden @ rows[order].T)


def shuffled(family, seed):
    """For each layer: the expert that gets each new number. Groups stay whole."""
    chance = random.Random(seed)
    groups = GROUPS if family == "deepseek_v3" else 1
    size = EXPERTS // groups
    orders = []
    for _ in range(FAMILIES[family][2]):
        order = [chance.sample(range(g * size, (g + 1) * size), size) for g in chance.sample(range(groups), groups)]
        orders.append(sum(order, []))
    return orders


class PermutedCheckpoints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start_over(self):
        self.doCleanups()
        self.setUp()

    def permuted(self, family, top_k, dtype=torch.float32):
        before, after, orders = self.folder / "before", self.folder / "after", shuffled(family, 1)
        save_model(family, before, top_k, dtype)
        placement = {"format": "evenkeel.placement.v1", "num_layers": len(orders), "num_experts": EXPERTS}
        path = self.folder / "placement.json"
        path.write_text(json.dumps(placement | {"num_ranks": RANKS, "physical_to_logical": orders}), encoding="utf-8")
        words = [COMMAND, "permute", before, "--placement", path, "-o", after]
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        return before, after

    def test_two_experts_a_token_give_the_same_bits_where_softmax_does_not_depend_on_the_order(self):
        if not rows_keep_their_bits():
            self.skipTest("a row of a product depends on its place on this machine")
        for family in FAMILIES:
            with self.subTest(family=family), order_free_softmax():
                before, after = (logits(folder) for folder in self.permuted(family, 2))
                self.assertTrue(torch.equal(before, after))
            self.start_over()

    def test_in_bfloat16_only_tokens_whose_choice_is_a_tie_differ(self):
        for family in FAMILIES:
            with self.subTest(family=family), order_free_softmax():
                folders = self.permuted(family, 2, dtype=torch.bfloat16)
                before, after = (logits(folder, torch.bfloat16, tokens=ONE_EACH) for folder in folders)
                differ = (before != after).any(dim=-1).flatten()
                tied = tied_tokens(folders[0], torch.bfloat16, ONE_EACH)
                self.assertFalse((differ & ~tied).any().item())
                self.assertLess(tied.sum().item(), 40)
            self.start_over()


def compared(before, after, **how):
    one, two = logits(before, **how), logits(after, **how)
    return "same bits" if torch.equal(one, two) else f"{(one - two).abs().max().item():.1e}"


def print_table():
    """Prints the largest difference over 3 x 40 tokens; for bfloat16, how many of 97 tokens differ or tie."""
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    kinds = ["eager", "grouped_mm"] if int(transformers.__version__.split(".")[0]) >= 5 else [None]
    case = PermutedCheckpoints()
    case.setUp()
    for family, top_k in [(family, top_k) for family in FAMILIES for top_k in [2, 4]]:
        before, after = case.permuted(family, top_k)
        cells = [f"largest logit {logits(before).abs().max().item():.1f}"]
        cells += [f"{kind or 'loop'}: {compared(before, after, experts=kind)}" for kind in kinds]
        with order_free_softmax():
            cells += [f"{kind or 'loop'}, softmax in f64: {compared(before, after, experts=kind)}" for kind in kinds]
        case.start_over()
        before, after = case.permuted(family, top_k, dtype=torch.bfloat16)
        one, two = (logits(folder, torch.bfloat16, tokens=ONE_EACH) for folder in (before, after))
        tied = tied_tokens(before, torch.bfloat16, ONE_EACH)
        differ = (one != two).any(dim=-1).flatten()
        cells.append(
            f"bf16: {differ.sum().item()} differ, {tied.sum().item()} tied, {(differ & ~tied).sum().item()} untied"
        )
        case.start_over()
        print(f"{family} top-{top_k} | " + " | ".join(cells), flush=True)
    case.doCleanups()


if __name__ == "__main__":
    if TABLE:
        print_table()
    else:
        unittest.main(argv=sys.argv[:1])
