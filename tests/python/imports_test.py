"""The package imports large modules only on request, and knows its version."""

import re
import subprocess
import sys
import unittest

from support import REPOSITORY

import evenkeel as ek


class Imports(unittest.TestCase):
    def test_the_package_imports_neither_torch_nor_transformers(self):
        script = "import evenkeel, sys; print(*{'torch', 'transformers', 'evenkeel.torch'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "")

    def test_the_version_is_the_project_s(self):
        project = (REPOSITORY / "CMakeLists.txt").read_text()
        self.assertIn(f"project(evenkeel VERSION {ek.__version__} ", project)
        self.assertTrue(re.fullmatch(r"\d+\.\d+\.\d+", ek.__version__))
