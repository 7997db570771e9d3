"""The include check finds each kind of wrong include, and accepts a correct tree."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_includes


class CheckIncludes(unittest.TestCase):
    def problems(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return check_includes.Finder(Path(folder)).run()

    def assert_one_problem(self, files, words):
        found = self.problems(files)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_accepts_what_the_table_permits_directly_and_through_others(self):
        self.assertEqual(
            self.problems(
                {
                    "evenkeel/base/error.h": "#pragma once\n",
                    "evenkeel/plan/plan.h": '#pragma once\n#include "evenkeel/base/error.h"\n',
                    "evenkeel/balance/ep.cpp": '#include "evenkeel/base/error.h"\n#include <fmt/format.h>\n',
                    "evenkeel/exchange/deal.h": '#pragma once\n#include "evenkeel/plan/plan.h"\n',
                    "cli/plan.cpp": '#include "evenkeel/exchange/deal.h"\n#include <CLI/CLI.hpp>\n',
                }
            ),
            [],
        )

    def test_refuses_what_the_table_or_a_header_forbids_and_says_why(self):
        once = "#pragma once\n"
        for files, words in [
            ({"evenkeel/balance/ep.h": once, "evenkeel/plan/plan.h": once + '#include "evenkeel/balance/ep.h"\n'},
             "evenkeel/plan/plan.h:2: plan may not include balance (it may include base, routing, topology)"),
            ({"evenkeel/device/arena.h": once, "evenkeel/io/file.cpp": '  #  include "evenkeel/device/arena.h"\n'},
             "io may not include device"),
            ({"evenkeel/io/internal/json.h": once, "evenkeel/io/file.h": once + '#include "evenkeel/io/internal/json.h"\n'},
             "which is not installed"),
            ({"evenkeel/io/internal/file.h": "int f();\n"}, "without #pragma once"),
            ({"evenkeel/io/file.cpp": '#include "evenkeel/io/lost.h"\n'}, "there is no"),
            ({"evenkeel/utils/all.cpp": "\n"}, "evenkeel/utils"),
        ]:  # fmt: skip
            with self.subTest(words):
                self.assert_one_problem(files, words)

    def test_lets_what_needs_a_gpu_include_the_device_and_nothing_else_include_it(self):
        device = {"evenkeel/device/arena.h": "#pragma once\n", "evenkeel/device/cuda/team.h": "#pragma once\n"}
        both = '#include "evenkeel/device/arena.h"\n#include "evenkeel/device/cuda/team.h"\n'
        self.assertEqual(self.problems(device | {"evenkeel/balance/cuda/plan.cu": both}), [])
        self.assertEqual(self.problems(device | {"evenkeel/comm/nccl/ranks.cpp": both}), [])
        team = '#include "evenkeel/device/cuda/team.h"\n'
        self.assert_one_problem(device | {"evenkeel/comm/faulty.cpp": team}, "is only for sources that need a GPU")
        header = "#pragma once\n#include <cuda_runtime.h>\n"
        self.assert_one_problem({"evenkeel/device/cuda/stream.h": header}, "<cuda_runtime.h>")
        self.assertEqual(self.problems({"evenkeel/device/cuda/check.cuh": header}), [])

    def test_refuses_internal_headers_from_outside_their_folder(self):
        internal = {"evenkeel/comm/thread/internal/world.h": "#pragma once\n"}
        include = '#include "evenkeel/comm/thread/internal/world.h"\n'
        self.assertEqual(self.problems(internal | {"evenkeel/comm/thread/run.cpp": include}), [])
        self.assert_one_problem(internal | {"evenkeel/comm/faulty.cpp": include}, "is internal to evenkeel/comm/thread")
        self.assert_one_problem(internal | {"cli/run.cpp": include}, "is internal to evenkeel/comm/thread")

    def test_refuses_third_party_types_in_public_headers_alone(self):
        for header in ["fmt/format.h", "nlohmann/json.hpp", "oneapi/dnnl/dnnl.hpp", "dnnl.hpp", "zip.h", "CLI/CLI.hpp"]:
            text = f"#pragma once\n#include <{header}>\n"
            self.assert_one_problem({"evenkeel/io/file.h": text}, f"<{header}>")
            self.assertEqual(self.problems({"evenkeel/io/internal/file.h": text, "evenkeel/io/file.cpp": text}), [])

    def test_refuses_long_files_of_every_kind(self):
        self.assertEqual(self.problems({"evenkeel/io/a.cpp": "\n" * 600}), [])
        for name in ["evenkeel/io/a.cpp", "tests/io/a_test.cpp", "tools/a.py"]:
            self.assert_one_problem({name: "\n" * 601}, "601 lines")
