"""The GPU checks pass on the CPU, and report a failure if there is one."""

from __future__ import annotations

import json
import tempfile
import unittest
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import gpu_checks
import torch
from gpu_checks import Line, waits_noted

from evenkeel.torch._exchange import to_device


def run() -> tuple[int, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        return gpu_checks.main(["--device", "cpu", "--json", str(path)]), json.loads(path.read_text())


class GpuChecksTest(unittest.TestCase):
    def test_they_hold_on_the_cpu(self) -> None:
        status, found = run()
        self.assertEqual((status, found["failures"]), (0, []))
        self.assertEqual(sum(line["at_most"] is not None for line in found["lines"]), 20)

    def test_a_missed_bar_and_a_part_that_fails_are_a_failure_and_the_others_run(self) -> None:
        fails = AssertionError("rank 1 failed")
        for threads, more, failures in ((None, 2, 0), (fails, 1, 3)):
            of_ranks = mock.Mock(return_value=[[]] * gpu_checks.RANKS, side_effect=threads)
            planning = mock.Mock(return_value=[Line("plan", more, "us", 1)])
            with mock.patch.multiple(gpu_checks, run_threads=of_ranks, planning=planning):
                status, found = run()
            self.assertEqual((status, len(found["failures"]), len(found["lines"])), (1, failures, 1))

    def test_waits_are_those_that_code_of_evenkeel_asks_for(self) -> None:
        as_tensor = torch.as_tensor

        def waiting(*given: Any, **named: Any) -> torch.Tensor:
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
            return as_tensor(*given, **named)

        cpu, places = torch.device("cpu"), list[str]()
        with mock.patch("torch.cuda.set_sync_debug_mode"), waits_noted(torch.device("cuda"), places):
            with mock.patch("torch.as_tensor", waiting):
                to_device([1], cpu)
                torch.as_tensor([1])
            to_device([1], cpu)
        self.assertEqual(len(places), 1)
        self.assertRegex(places[0], r"^_exchange\.py:\d+ .*as_tensor")


if __name__ == "__main__":
    unittest.main()
