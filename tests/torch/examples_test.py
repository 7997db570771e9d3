"""The examples run on two processes and print what they should."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from processes import run_program
from safetensors.torch import load_file
from tiny_models import Routers
from transformers import Qwen3MoeForCausalLM

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def torchrun(program: str, *options: str) -> str:
    """Returns what an example prints on two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*command, EXAMPLES / program, *options], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(done.stderr[-4000:])
    return done.stdout


class ExamplesTest(unittest.TestCase):
    def test_a_layer_of_ones_own(self) -> None:
        said = run_program(2, EXAMPLES / "balanced_layer.py")
        self.assertIn("assignments by rank [1024, 1024], weights that travelled: 1", said)

    def test_a_layer_over_two_nodes(self) -> None:
        said = run_program(4, EXAMPLES / "balanced_layer.py", "--ranks-per-node", 2)
        self.assertIn("rows: 0 between nodes, 2048 within\nweights: 2 between nodes, 1 within\n", said)

    def test_a_dispatcher_of_ones_own(self) -> None:
        said = run_program(2, EXAMPLES / "slots_layer.py")
        self.assertIn("assignments by rank [512, 512], weights that travelled: 1", said)
        self.assertIn("in three steps without gradients: [1, 0, 0]", said)

    def test_routes_that_are_replayed(self) -> None:
        """Losses and gradients match one process whose routers are given the same choices."""
        with tempfile.TemporaryDirectory() as folder:
            said = run_program(2, EXAMPLES / "replay_routes.py", "--folder", folder)
            model = Qwen3MoeForCausalLM.from_pretrained(f"{folder}/model")
            sampled = [load_file(f"{folder}/sampled.{rank}.safetensors") for rank in range(2)]
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        lines = re.findall(r"loss (.*), gradient of the first router (.*); weights that travelled: (.*)", said)
        for loss, router, moved in lines:
            losses = []
            for each in sampled:
                with Routers(each["ids"].flatten(0, 1).long(), experts=16):
                    logits = model(each["tokens"][:, :-1]).logits
                losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), each["tokens"][:, 1:].flatten()))
            mean = (losses[0] + losses[1]) / 2
            mean.backward()
            self.assertAlmostEqual(float(loss), mean.item(), delta=1e-5)
            norm = model.model.layers[0].mlp.gate.weight.grad.norm()
            self.assertAlmostEqual(float(router), float(norm), delta=2e-3 * float(norm))
            self.assertGreater(int(moved), 0)
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(len(lines), 2)
        self.assertIn("without replay: routed_experts: is not what the router of layer", said)

    def test_a_process_that_dies(self) -> None:
        """The other processes repeat the step without the dead one, and end with the weights of a single process."""
        with tempfile.TemporaryDirectory() as alone, tempfile.TemporaryDirectory() as folder:
            for options in ((alone, "1", "-1"), (folder, "3", "1")):
                command = [sys.executable, EXAMPLES / "elastic.py", *options]
                done = subprocess.run(command, capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
            for survivor in (0, 2):
                self.assertIn(f"process {survivor}: rank 1 does not answer (its process has ended", done.stdout)
            self.assertIn("step 1 on rank 2 of 3; weights that travelled: 2", done.stdout)
            self.assertIn("step 2 on rank 1 of 2; weights that travelled: 2", done.stdout)
            for expert in range(12):
                for one, other in zip(*(torch.load(f"{each}/5.{expert}") for each in (alone, folder)), strict=True):
                    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)

    def test_a_transformers_model(self) -> None:
        said = torchrun("balanced_model.py", "--budget", "16MiB")
        self.assertIn("step 4: loss", said)


if __name__ == "__main__":
    unittest.main()
