"""docs/training-recipe.md runs on two processes, and its functions clip by the gradient norm of one process."""

from __future__ import annotations

import ast
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import torch
from layer_test import HIDDEN, all_weights, at_home, experts, inputs, one_process
from processes import run_program, run_ranks
from torch.nn.utils import get_total_norm
from transformers_test import save, spread_and_alone

import evenkeel.transformers
from evenkeel.torch import ExpertParallel

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests" / "docs"))
import readme_snippets  # noqa: E402

PAGE = (REPOSITORY / "docs" / "training-recipe.md").read_text(encoding="utf-8")
PROGRAM = "".join(block.text for block in readme_snippets.blocks(PAGE) if block.language == "python")
E, K = 4, 2


def functions() -> dict[str, Any]:
    """The page's functions by name, without running the rest of the page."""
    tree = ast.parse(PROGRAM)
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef)]
    found: dict[str, Any] = {}
    exec(compile(tree, "training-recipe.md", "exec"), found)
    return found


def norms_of_a_model(rank: int, ranks: int, path: str, tp: int, ep: int) -> list[float]:
    """The norm in one process, the norm from the page's function, and the norm after clipping to half."""
    evenkeel.transformers.register(min_segment=1, imbalance_threshold=0.0)
    model, alone, _ = spread_and_alone(rank, ranks, path, "eager", tp, ep)
    want = float(get_total_norm([parameter.grad for parameter in alone.parameters() if parameter.grad is not None]))
    clip = functions()["clip_grad_norm"]
    return [want, *(float(clip(model.parameters(), most)) for most in (want / 2, float("inf")))]


def norms_of_a_layer(rank: int, ranks: int) -> list[float]:
    """The same norms for a user's own layer after a dense product whose gradients are averaged."""
    whole = {name: weight.requires_grad_() for name, weight in all_weights(1, E).items()}
    dense = [torch.eye(HIDDEN, requires_grad=True) for _ in range(2)]
    ids = [torch.randint(E, (20, K), generator=torch.Generator().manual_seed(each)) for each in range(ranks)]
    for each in range(ranks):
        hidden, top_k, grad = inputs(1, each, ids[each])
        one_process(hidden @ dense[0], ids[each], top_k, whole).backward(grad / ranks)
    want = float(get_total_norm([tensor.grad for tensor in (dense[0], *whole.values()) if tensor.grad is not None]))

    own = at_home(whole, rank, ranks)
    hidden, top_k, grad = inputs(1, rank, ids[rank])
    ExpertParallel(E, min_segment=1, imbalance_threshold=0.0)(
        hidden @ dense[1], ids[rank], top_k, experts, own
    ).backward(grad)
    assert dense[1].grad is not None
    torch.distributed.all_reduce(dense[1].grad)  # as DistributedDataParallel does
    dense[1].grad /= ranks
    clip = functions()["clip_own_layer"]
    said = float(clip(dense[1:], list(own.values()), want / 2))
    for weight in own.values():
        assert weight.grad is not None
        weight.grad *= ranks  # clip_own_layer divided by it
    return [want, said, float(clip(dense[1:], list(own.values()), float("inf")))]


class TrainingRecipeTest(unittest.TestCase):
    def test_the_page_runs(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "train.py").write_text(PROGRAM, encoding="utf-8")
            self.assertIn("False [", run_program(2, Path(folder, "train.py"), folder=Path(folder)))
            names = {path.name for path in Path(folder, "out", "checkpoint-2").iterdir()}
            self.assertIn("model.safetensors", names)

    def test_the_norm_over_two_meshes_is_one_process_s(self) -> None:
        with tempfile.TemporaryDirectory() as path:
            save("Qwen3Moe", path)
            for ranks, tp, ep in ((2, 1, 2), (4, 1, 2), (2, 2, 2)):
                for said in run_ranks(ranks, norms_of_a_model, path, tp, ep):
                    self.assert_clipped(*said)

    def test_the_norm_around_a_layer_of_ones_own_is_one_process_s(self) -> None:
        for said in run_ranks(2, norms_of_a_layer):
            self.assert_clipped(*said)

    def assert_clipped(self, want: float, before: float, after: float) -> None:
        self.assertAlmostEqual(before / want, 1, places=4)
        self.assertAlmostEqual(after / want, 0.5, places=4)


if __name__ == "__main__":
    unittest.main()
