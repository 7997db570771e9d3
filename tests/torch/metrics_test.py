"""What users see: metrics, a Trainer's reports, the log, layers as text, and names in a profile."""

from __future__ import annotations

import logging
import os
import tempfile
import unittest
from functools import partial
from statistics import mean
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import transformers as T
from layer_test import all_weights, at_home, experts, inputs
from processes import error_message, lines_of_log, run_ranks
from slots_test import dispatcher
from torch import nn
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers_test import load, save

import evenkeel as ek
import evenkeel.transformers
from evenkeel.torch import ExpertParallel, ExpertSlots, SpillCosts, metrics
from evenkeel.torch._phase_range import phase_range
from evenkeel.torch._run_log import run_log

E, TOKENS = 8, 40
COSTS = SpillCosts(1e-3, 1e-6, 0)


class Model(nn.Module):
    """A layer with a name, a layer known by its place in the model, and a layer that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.named = ExpertParallel(E, min_segment=1, budget="64MiB", costs=COSTS, name="the first")
        self._wrapper = nn.Module()
        self._wrapper.block = nn.Module()
        self._wrapper.block.moe = ExpertSlots(E, slots=2, min_segment=1, imbalance_threshold=0.0)
        self.unused = ExpertParallel(E)

    @property
    def slots(self) -> ExpertSlots:
        layer: ExpertSlots = self._wrapper.block.moe
        return layer

    def step(self, rank: int, hot: int) -> torch.Tensor:
        """Every token chooses the expert `hot` and one other expert."""
        ids = torch.stack([torch.full((TOKENS,), hot), (hot + 1 + torch.arange(TOKENS) % (E - 1)) % E], 1)
        hidden, top_k, _ = inputs(1, rank, ids)
        own = at_home(all_weights(1, E), rank, 2)
        carry = partial(dispatcher, here=self.slots.places_here)
        return self.slots(self.named(hidden, ids, top_k, experts, own), ids, top_k, experts, own, carry)


class Reporter(T.TrainerCallback):  # type: ignore[misc]
    """Stands in for wandb and other reporters of a Trainer."""

    reports: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **beside: Any) -> None:
        if state.is_world_process_zero:
            self.reports.append(dict(logs))


def look(rank: int, ranks: int, path: str) -> dict[str, Any]:
    """Collects all texts of this rank; numbers are compared here."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "localhost"}
    lines = lines_of_log(logging.INFO)

    model = Model()
    assert metrics(model) == {}
    words = [repr(model.named)]
    model.step(rank, hot=0).sum().backward()
    trained = metrics(model)
    check(trained, {"the first": model.named, "block.moe": model.slots})
    assert trained == check_alike(trained)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model.step(rank, hot=0).sum().backward()
    assert phase_range("plan") is phase_range("dispatch"), "nothing is made where no profiler runs"
    with torch.no_grad():
        model.step(rank, hot=E - 1)
    assert metrics(model) == trained, "of the last step with gradients"
    assert (model.named.last["training"], model.named.last_training["training"]) == (False, True)
    one = metrics(model.named)
    check(one, {"the first": model.named})
    words += [repr(model.named), repr(model.slots)]
    refused = [error_message(lambda: metrics(nn.Linear(1, 1)), ek.errors.InvalidArgument)]
    refused += [error_message(lambda: evenkeel.transformers.report_metrics(model), ek.errors.InvalidArgument)]  # type: ignore[arg-type]
    run_log.end()
    own_lines = lines.copy()
    lines.clear()
    reports, layers = train(rank, ranks, path)
    return {
        "words": words,
        "lines": own_lines,
        "least": model.named.budgets().least,
        "lines of a Trainer": lines,
        "phases": {event.key for event in profile.key_averages() if event.key.startswith("evenkeel: ")},
        "refused": refused,
        "reports": reports,
        "layers": layers,
    }


def check(found: dict[str, float | int], layers: dict[str, ExpertParallel]) -> None:
    """Compares metrics with the layers' reports of their last step, recomputed in another way."""
    right: dict[str, float | int] = {}
    for name, layer in layers.items():
        last = layer.last_training
        loads, at_home = last["rank_loads"], last["home_loads"]
        of: dict[str, float | int] = {
            "max_over_mean": max(loads) / mean(loads),
            "max_over_mean_home": max(at_home) / mean(at_home),
            "transfers": last["transfers"],
            "chunks": last["chunks"],
            "lacked_memory": 0,
        }
        assert last["transfers"] > 0 and not last["lacked_memory"]
        if layer.budget is not None:
            of |= {"budget_bytes": 64 << 20, "least_bytes": layer.budgets().least}
            of |= {"predicted_gain_seconds": 1e-3 * (max(at_home) - max(loads))}
        right |= {f"evenkeel/{name}/{what}": number for what, number in of.items()}
    for what in {name.split("/")[2] for name in right}:
        every = [number for name, number in right.items() if name.endswith(f"/{what}")]
        right[f"evenkeel/mean/{what}"], right[f"evenkeel/worst/{what}"] = mean(every), max(every)
    assert found.keys() == right.keys(), found.keys() ^ right.keys()
    for name, number in right.items():
        assert type(found[name]) in (int, float) and abs(found[name] - number) < 1e-12, (name, found[name], number)


def check_alike(found: dict[str, float | int]) -> dict[str, float | int]:
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, found)
    assert every == [found] * len(every)
    return found


def train(rank: int, ranks: int, path: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns what the Trainer's reporter received, and the layers' final numbers."""
    evenkeel.transformers.register(min_segment=1, imbalance_threshold=0.0)
    model = load(path, "eager", fsdp_size=ranks, ep_size=ranks)
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (8, 16))]
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(INTEGRATION_TO_CALLBACK, recording=Reporter):
        arguments = T.TrainingArguments(
            folder, max_steps=2, logging_steps=1, save_strategy="no", eval_strategy="epoch", use_cpu=True,
            per_device_train_batch_size=2, report_to=["recording"], disable_tqdm=True,
        )  # fmt: skip
        trainer = T.Trainer(model, arguments, train_dataset=data, eval_dataset=data[:2])
        evenkeel.transformers.report_metrics(trainer, per_layer=True)
        evenkeel.transformers.report_metrics(trainer)
        evenkeel.transformers.report_metrics(trainer, per_layer=rank == 0)
        trainer.train()
        evaluated = trainer.evaluate()
    assert not any("evenkeel" in name for name in evaluated), evaluated
    return Reporter.reports, [metrics(layer) for layer in evenkeel.transformers.layers(model)]


class MetricsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as path:
            save("Qwen3Moe", path)
            cls.found, cls.other = run_ranks(2, look, path)

    def test_a_trainer_reports_what_the_layers_did(self) -> None:
        reports, layers = self.found["reports"], self.found["layers"]
        of_steps = [report for report in reports if "loss" in report]
        self.assertEqual(len(of_steps), 2)
        for report in of_steps:
            self.assertEqual(sum(name.startswith("evenkeel/mean/") for name in report), 5)
        for numbers in layers:
            of_layer = {name: number for name, number in numbers.items() if "/model.layers." in name}
            self.assertEqual(len(of_layer), 5)
            self.assertEqual(of_steps[-1], of_steps[-1] | of_layer, "as they were after the last step")
        for report in reports:
            self.assertTrue("loss" in report or not any("evenkeel" in name for name in report), report)
        self.assertEqual(self.other["reports"], [])

    def test_layers_say_in_a_line_what_they_are(self) -> None:
        options = "8 experts on 2 ranks, level"
        did = "last step as planned, 1 chunk, 1 transfer, max/mean 1.00 (1.40 at home)"
        words = [
            f"ExpertParallel(the first: {options}, budget 67108864 bytes; no step yet)",
            f"ExpertParallel(the first: {options}, budget 67108864 bytes; {did})",
            f"ExpertSlots({options}, 2 slots a rank; {did})",
        ]
        self.assertEqual([self.found["words"], self.other["words"]], [words] * 2)

    def test_rank_0_logs_a_line_after_the_first_steps_and_one_at_the_end(self) -> None:
        first, end = self.found["lines"]
        self.assertEqual(
            first,
            "1 layer of 8 experts on 2 ranks, level, budget 67108864 bytes; 1 layer of 8 experts on 2 ranks, level, 2 slots "
            f"a rank. First steps: chunks 1, transfers 1, least budget {self.found['least']} bytes. Costs in microseconds: "
            "1e+03 an assignment, 1 a transfer, 0 a step that moves work",
        )
        self.assertEqual(
            end,
            "6 steps of layers, 4 with gradients. On average max/mean 1.00 (1.43 at home), 1.0 transfers, 1.0 chunks; "
            "0 lacked memory to balance",
        )
        of_trainer = "2 layers of 8 experts on 2 ranks, level. First steps: chunks 1, transfers 1"
        self.assertEqual(self.found["lines of a Trainer"], [of_trainer])
        self.assertEqual(self.other["lines"] + self.other["lines of a Trainer"], [])

    def test_a_profile_has_the_phases(self) -> None:
        of_both = {"counts", "plan", "rows", "routes", "weights", "dispatch", "wait for weights", "experts at home"}
        of_both |= {"combine", "agreement", "gradient dispatch", "router weights", "router gradients", "dispatcher"}
        of_both |= {"weight gradients", "gradients of experts at home", "gradient return", "wait for weight gradients"}
        of_other = {"borrowed experts", "gradients of borrowed experts"}
        for found, phases in ((self.found, of_both), (self.other, of_both | of_other)):
            self.assertEqual(found["phases"], {f"evenkeel: {phase}" for phase in phases})

    def test_what_has_no_layers_is_refused(self) -> None:
        allowed = "a model with ExpertParallel or ExpertSlots, or loaded with evenkeel.transformers"
        refused = [
            f"model: Linear has no evenkeel layer; allowed: {allowed}",
            "trainer: is a Model; allowed: a transformers Trainer",
        ]
        self.assertEqual(self.found["refused"], refused)


if __name__ == "__main__":
    unittest.main()
