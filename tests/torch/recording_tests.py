"""Shared by the tests of record(): models that choose the given experts, and choices seen by hand-written hooks."""

import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

import evenkeel.torch


def chosen_by_hand(model, suffix, run):
    """The ids and weights given to experts, `[tokens, layers, k]`, seen by hooks on modules of a known name."""
    ids, weights, hooks = {}, {}, []
    for name, module in model.named_modules():
        if name.endswith(suffix):

            def take(module, arguments, named, name=name):
                _, top_k, scale = [*arguments, *named.values()]
                ids.setdefault(name, []).append(top_k)
                weights.setdefault(name, []).append(scale.float())

            hooks.append(module.register_forward_pre_hook(take, with_kwargs=True))
    with torch.no_grad():
        run()
    for hook in hooks:
        hook.remove()
    return tuple(np.stack([torch.cat(calls).numpy() for calls in each.values()], 1) for each in (ids, weights))


class Bare(torch.nn.Module):
    """The smallest module that record() accepts as experts."""

    def __init__(self, num_experts=4):
        super().__init__()
        self.num_experts = num_experts

    def forward(self, hidden_states, top_k_index, top_k_weights):
        return hidden_states


class Fixed(torch.nn.Module):
    """A model that chooses the given ids: one tensor `[tokens, k]` for each layer."""

    def __init__(self, *experts):
        super().__init__()
        self.layers = torch.nn.ModuleList(experts)

    def forward(self, *ids):
        for experts, chosen in zip(self.layers, ids, strict=True):
            if chosen is not None:
                experts(torch.zeros(len(chosen), 1), chosen, torch.ones(chosen.shape))


class RecordTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = self.folder / "trace.safetensors"

    def recorded(self, model, *calls, **options):
        with evenkeel.torch.record(model, self.path, **options), torch.no_grad():
            for call in calls:
                model(**call)
        return self.arrays()

    def arrays(self):
        with safe_open(self.path, "numpy") as file:
            self.metadata = file.metadata()
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def assert_refused(self, error_type, message, model, *ids, run=None):
        """Checks that recording a call with these ids, or `run`, raises the error and leaves no file."""
        with self.assertRaises(error_type) as caught, evenkeel.torch.record(model, self.path):
            run() if run else model(*ids)
        self.assertIn(message, str(caught.exception))
        self.assertTrue(caught.exception.data)
        self.assertEqual(list(self.folder.iterdir()), [])
