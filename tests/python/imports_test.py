"""The package imports what is large only on request."""

import subprocess
import sys
import unittest


class Imports(unittest.TestCase):
    def test_the_package_imports_neither_torch_nor_transformers(self):
        script = "import evenkeel, sys; print(*{'torch', 'transformers', 'evenkeel.torch'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "")


if __name__ == "__main__":
    unittest.main()
