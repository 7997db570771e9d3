"""The examples run on two processes and say what they should."""

import subprocess
import sys
import unittest
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def torchrun(program: str | Path, *options: object, folder: Path | None = None) -> str:
    """What an example, or another program, says on two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += map(str, [EXAMPLES / program, *options])
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(done.stderr[-4000:])
    return done.stdout


class ExamplesTest(unittest.TestCase):
    def test_a_layer_of_ones_own(self) -> None:
        said = torchrun("balanced_layer.py")
        self.assertIn("assignments by rank [1024, 1024], weights that travelled: 1", said)

    def test_a_dispatcher_of_ones_own(self) -> None:
        said = torchrun("slots_layer.py")
        self.assertIn("assignments by rank [512, 512], weights that travelled: 1", said)
        self.assertIn("in three steps without gradients: [1, 0, 0]", said)

    def test_a_transformers_model(self) -> None:
        said = torchrun("balanced_model.py", "--budget", "16MiB")
        self.assertIn("step 4: loss", said)


if __name__ == "__main__":
    unittest.main()
