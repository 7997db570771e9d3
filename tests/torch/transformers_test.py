"""transformers models on several processes give the logits and gradients of one process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers as T
from processes import error_message, run_ranks
from transformers.distributed import DistributedConfig
from transformers.distributed.expert_parallel import EPImplementationInterface

import evenkeel as ek
import evenkeel.transformers

SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "head_dim": 8,
}
FAMILIES: dict[str, Any] = {
    "Qwen3Moe": {"num_experts": 8, "moe_intermediate_size": 16, "intermediate_size": 32},
    "Mixtral": {"num_local_experts": 8, "intermediate_size": 16},
    "GptOss": {"num_local_experts": 8, "intermediate_size": 16},
}
TOKENS = 40


def save(family: str, path: str, **shape: Any) -> None:
    torch.manual_seed(0)
    config = getattr(T, f"{family}Config")(**SHAPE | FAMILIES[family] | shape)
    getattr(T, f"{family}ForCausalLM")(config).save_pretrained(path)


def load(path: str, experts: str | None = None, ep_implementation: str = "evenkeel", **parallel: Any) -> Any:
    distributed = DistributedConfig(**parallel, ep_implementation=ep_implementation) if parallel else None
    return T.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, distributed_config=distributed, experts_implementation=experts
    )


def local(tensor: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return made


def layer_names(rank: int, ranks: int, path: str) -> list[str]:
    """The layers' names in errors, before and after the model has run."""
    evenkeel.transformers.register()
    assert evenkeel.transformers.layers(load(path, "eager")) == []
    model = load(path, "eager", fsdp_size=ranks, ep_size=ranks)
    names = [layer.exchange.layer for layer in evenkeel.transformers.layers(model)]
    model(torch.zeros((1, 4), dtype=torch.int64))
    return names + [layer.exchange.layer for layer in evenkeel.transformers.layers(model)]


def spread_and_alone(rank: int, ranks: int, path: str, experts: str, tp: int, ep: int) -> tuple[Any, Any, torch.Tensor]:
    """A model over all ranks, the same model in one process with gradients of all batches, and this rank's batch."""
    model = load(path, experts, tp_size=tp, fsdp_size=ranks // tp, ep_size=ep)
    alone = load(path, experts)
    batches = ranks // tp
    ids = torch.randint(0, 64, (batches, TOKENS), generator=torch.Generator().manual_seed(1))
    mine = ids[rank // tp : rank // tp + 1]
    model(mine, labels=mine).loss.backward()
    (sum(alone(batch[None], labels=batch[None]).loss for batch in ids) / batches).backward()
    return model, alone, mine


def compare(rank: int, ranks: int, path: str, experts: str, options: dict[str, Any], tp: int, ep: int) -> None:
    """Fails if logits or experts' gradients differ from one process."""
    evenkeel.transformers.register(min_segment=1, **options)
    model, alone, mine = spread_and_alone(rank, ranks, path, experts, tp, ep)
    made = model(mine).logits
    made = made.full_tensor() if hasattr(made, "full_tensor") else made
    single = alone(mine).logits
    # The CPU's products of few rows depend on how many there are; layer_test uses experts whose products do not.
    assert torch.allclose(made, single, rtol=1e-5, atol=1e-6), f"logits off by {(made - single).abs().max()}"
    for (name, parameter), (_, whole) in zip(model.named_parameters(), alone.named_parameters(), strict=True):
        if "experts" not in name:
            continue
        assert parameter.grad is not None and whole.grad is not None, name
        grad, want = parameter.grad.full_tensor(), whole.grad
        assert (grad - want).abs().max() <= 1e-4 * whole.grad.abs().max(), f"{name}: {(grad / want).median()}"


def nothing_moves(rank: int, ranks: int, path: str) -> None:
    """If nothing may move, logits are transformers' own to the bit."""
    evenkeel.transformers.register(imbalance_threshold=1e6)
    ids = torch.randint(0, 64, (1, TOKENS), generator=torch.Generator().manual_seed(rank))
    made = []
    for name in ("evenkeel", "all_to_all"):
        model = load(path, ep_implementation=name, fsdp_size=ranks, ep_size=ranks)
        made.append(model(ids).logits)
    assert torch.equal(*made)


def refused(rank: int, ranks: int, path: str) -> str:
    """transformers' own error for this number of experts and ranks, raised before our code is used."""
    evenkeel.transformers.register()
    return error_message(lambda: load(path, "eager", fsdp_size=ranks, ep_size=ranks), ValueError)


def heard(rank: int, ranks: int, path: str, loads: list[dict[str, Any]]) -> list[str]:
    """Our warnings while models loaded with each of `loads` run two steps each, after two calls of register()."""
    evenkeel.transformers.register()
    evenkeel.transformers.register("other")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.nn.Linear(2, 2)(torch.ones(2))
        for parallel in loads:
            model = load(path, "eager", **parallel)
            for _ in range(2):
                model(torch.zeros((1, 4), dtype=torch.int64))
    return [str(each.message) for each in caught if "evenkeel" in str(each.message)]


def trained(rank: int, ranks: int, path: str, name: str) -> list[float]:
    """Losses of a few steps."""
    evenkeel.transformers.register(min_segment=1, imbalance_threshold=0.0)
    model = load(path, ep_implementation=name, fsdp_size=ranks, ep_size=ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(4):
        random = torch.Generator().manual_seed(100 * step + rank)
        ids = torch.randint(0, 64, (1, TOKENS), generator=random)
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / ranks)
    state = {name: local(value).clone() for name, value in model.state_dict().items()}
    model.load_state_dict(model.state_dict())
    assert all(torch.equal(local(value), state[name]) for name, value in model.state_dict().items())
    return losses


class TransformersTest(unittest.TestCase):
    folder: Path
    qwen: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.qwen = str(cls.folder / "Qwen3Moe")
        for family in FAMILIES:
            save(family, str(cls.folder / family))

    def test_logits_and_gradients(self) -> None:
        always: dict[str, Any] = {"imbalance_threshold": 0.0}
        for family, ranks, options, experts, tp, ep in (
            *((family, 2, always, "eager", 1, 2) for family in FAMILIES),
            ("Qwen3Moe", 4, always, "grouped_mm", 1, 4),
            ("Qwen3Moe", 4, always | {"nodes": 2}, "grouped_mm", 1, 4),
            ("Mixtral", 2, always | {"budget": "2MiB"}, "eager", 1, 2),
            ("GptOss", 2, {"planner": "least-loaded"}, "eager", 1, 2),  # the paper's planner, and the default threshold
            ("Qwen3Moe", 4, always, "eager", 1, 2),  # experts over half of the ranks
            ("Qwen3Moe", 2, always, "eager", 2, 2),  # tensor-parallel ranks share a batch
            ("Qwen3Moe", 4, always | {"mode": "slots", "slots": 1}, "grouped_mm", 1, 4),
            ("Mixtral", 2, always | {"mode": "slots"}, "eager", 1, 2),
            ("GptOss", 4, always | {"mode": "slots", "slots": 2}, "eager", 2, 4),
        ):
            with self.subTest(family, ranks=ranks, options=options, experts=experts, tp=tp, ep=ep):
                run_ranks(ranks, compare, str(self.folder / family), experts, options, tp, ep)

    def test_a_step_in_which_nothing_moves_is_the_frameworks_own(self) -> None:
        run_ranks(2, nothing_moves, self.qwen)

    def test_training_gives_the_stock_implementations_losses(self) -> None:
        ours, stock = (run_ranks(2, trained, self.qwen, name)[0] for name in ("evenkeel", "all_to_all"))
        for mine, theirs in zip(ours, stock, strict=True):
            self.assertAlmostEqual(mine, theirs, places=4)

    def test_a_number_of_experts_that_ep_size_does_not_divide_is_refused_as_the_docs_say(self) -> None:
        save("Qwen3Moe", str(self.folder / "seven"), num_experts=7)
        said = run_ranks(2, refused, str(self.folder / "seven"))
        self.assertEqual(said, ["Cannot evenly shard 7 experts across 2 expert-parallel ranks."] * 2)

    def test_a_layer_is_called_by_its_place_in_the_model(self) -> None:
        for names in run_ranks(2, layer_names, self.qwen):
            self.assertEqual(names[2:], ["model.layers.0.mlp.experts", "model.layers.1.mlp.experts"])
            self.assertEqual([int(name) for name in names[:2]], [int(names[0]), int(names[0]) + 1])

    def test_a_model_that_is_not_ours_is_spoken_of_once(self) -> None:
        ours = {"fsdp_size": 2, "ep_size": 2, "ep_implementation": "evenkeel"}
        alone, stock = ours | {"ep_size": 1}, ours | {"ep_implementation": "all_to_all"}
        for loads, said in (
            ([alone, alone], "loaded with ep_size=1, ep_implementation='evenkeel'; evenkeel needs an ep_size above 1"),
            ([stock], "loaded with ep_size=2, ep_implementation='all_to_all'; evenkeel"),
            ([{}], "Qwen3MoeForCausalLM runs without evenkeel, though .* loaded with no distributed_config"),
        ):
            for each in run_ranks(2, heard, self.qwen, loads):
                self.assertEqual(len(each), 1)
                self.assertRegex(each[0], said)
        self.assertEqual(run_ranks(2, heard, self.qwen, [ours, stock, {}]), [[], []])

    def test_a_name_that_transformers_has_is_refused(self) -> None:
        for name in ("all_to_all", "auto"):
            before = EPImplementationInterface()[name]
            with self.assertRaisesRegex(
                ek.errors.InvalidArgument, f'name: "{name}" is .*, which would be replaced; allowed'
            ):
                evenkeel.transformers.register(name)
            self.assertIs(EPImplementationInterface()[name], before)
        with self.assertRaisesRegex(ek.errors.InvalidArgument, "name: is a int; allowed: a str"):
            evenkeel.transformers.register(3)  # type: ignore[arg-type]

    def test_a_transformers_that_is_too_old_is_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            about = Path(folder, "transformers-4.57.1.dist-info")
            about.mkdir()
            (about / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 4.57.1\n")
            Path(folder, "transformers").mkdir()
            Path(folder, "transformers", "__init__.py").write_text("class PreTrainedModel: ...")
            script = (
                f"import sys; sys.path.insert(0, {folder!r})\n"
                "import evenkeel as ek\n"
                "for kind in (ek.Unsupported, ImportError):\n"
                "    try: import evenkeel.transformers\n"
                "    except kind as error: print(error, error.data['found'])\n"
            )
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        said = "evenkeel needs transformers 5.23 or later, and 4.57.1 is installed (No module named"
        for line in done.stdout.splitlines():
            self.assertTrue(line.startswith(said) and line.endswith("4.57.1"), line)
        self.assertEqual(len(done.stdout.splitlines()), 2)

    def test_options_are_checked_at_once(self) -> None:
        said = "placement: .* allowed: to leave it out, and to load what `evenkeel permute CHECKPOINT"
        with self.assertRaisesRegex(ek.errors.InvalidArgument, said):
            evenkeel.transformers.register(placement=ek.Placement.contiguous(1, 8, 2))
        links = {"planner": "ep", "topology": "2x8xh100"}
        for options in ({"planner": "best"}, {"budget": "much"}, {"budget": 0}, {"capacity_factor": 0.5}, links):
            with self.assertRaises(ek.errors.InvalidArgument):
                evenkeel.transformers.register(**options)  # type: ignore[arg-type]
        for options in ({"budget": "4GiB"}, {"chunk_bins": [1]}, {"capacity_factor": 1.5}, {"planner": "least-loaded"}):
            with self.assertRaisesRegex(ek.errors.InvalidArgument, next(iter(options))):
                evenkeel.transformers.register(mode="slots", **options)  # type: ignore[arg-type]
        with self.assertRaisesRegex(ek.errors.InvalidArgument, "did you mean 'budget'"):
            evenkeel.transformers.register(budgte="4GiB")  # type: ignore[call-arg]
        with self.assertRaisesRegex(ek.errors.InvalidArgument, "model: is a str; allowed: a Module"):
            evenkeel.transformers.layers("model")  # type: ignore[arg-type]
        for _ in range(2):
            evenkeel.transformers.register("other")
        self.assertIn("other", EPImplementationInterface())


if __name__ == "__main__":
    unittest.main()
