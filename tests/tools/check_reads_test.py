"""tools/check_reads.py reports calls that wait for a device, and accepts calls that do not."""

import ast
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_reads  # noqa: E402


class CheckReadsTest(unittest.TestCase):
    def test_what_waits(self) -> None:
        for line in ("x.cpu()", "x.sum().item()", "torch.tensor([1])", "x.repeat_interleave(n)", "x.bincount()"):
            self.assertEqual([at for at, _ in check_reads.found_in(ast.parse(line))], [1], line)

    def test_what_does_not(self) -> None:
        for line in ("np.bincount(x)", "x.repeat_interleave(n, output_size=8)", "def to_host(x):\n  return x.cpu()"):
            self.assertEqual([*check_reads.found_in(ast.parse(line))], [], line)

    def test_the_step(self) -> None:
        self.assertEqual(check_reads.main(ROOT), 0)


if __name__ == "__main__":
    unittest.main()
