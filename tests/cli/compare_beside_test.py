"""What `evenkeel compare` writes besides its tables: a timeline, and one comparison for each value of an option."""

import json
import unittest

from compare_test import EXPERTS, RANKS, CompareTest


class Beside(CompareTest):
    def test_a_timeline_has_each_methods_step_on_every_rank(self):
        result = self.compare(self.trace(tokens=4000, length=100), "--ranks", RANKS, *self.machine("--backward"),
                            "--methods", "level", "--min-segment", 1, "--timeline", "t.json")  # fmt: skip
        trace = json.loads((self.folder / "t.json").read_text(encoding="utf-8"))
        self.assertEqual(list(trace["otherData"]), ["layer", "step", "clock"])
        events = trace["traceEvents"]
        names = [e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"]
        self.assertEqual(names, [f"{each['name']}: rank {rank}" for each in result["methods"] for rank in range(RANKS)])
        ends, phases = {}, set()
        for event in (e for e in events if e["ph"] == "X"):
            thread = event["pid"], event["tid"]
            self.assertGreaterEqual(event["ts"], ends.get(thread, 0))
            ends[thread] = event["ts"] + event["dur"]
            phases.add((event["cat"], event["name"]))
        self.assertLessEqual({("forward", "products"), ("forward", "borrowed"), ("backward", "gradients")}, phases)
        steps = [end for (pid, tid), end in ends.items() if (pid, tid - 1) not in ends]  # without weight transfers
        for method in range(len(result["methods"])):
            self.assertEqual(len(set(steps[method * RANKS : (method + 1) * RANKS])), 1)
        arrows = {ph: {e["id"]: e for e in events if e["ph"] == ph} for ph in "sf"}
        self.assertEqual(set(arrows["s"]), set(arrows["f"]))
        self.assertTrue(arrows["s"])
        for number, start in arrows["s"].items():
            self.assertLessEqual(start["ts"], arrows["f"][number]["ts"])
        sent = {}
        for event in (e for e in events if e["ph"] == "C"):
            (value,) = event["args"].values()
            self.assertGreaterEqual(value, sent.get(event["pid"], 0))
            sent[event["pid"]] = value

    def test_a_sweep_is_the_comparisons_of_its_values(self):
        self.trace(tokens=2000, length=50)
        here = ["t.npz", *self.machine("--methods", "level")]
        done = self.call("compare", *here, "--num-experts", EXPERTS, "--ranks", 4, "--over", "ranks=2,4", "--json")
        swept = json.loads(done.stdout)
        self.assertEqual(list(swept), ["over", "values", "bottleneck", "methods", "comparisons"])
        self.assertEqual((swept["over"], swept["values"]), ("ranks", ["2", "4"]))
        for ranks, point in zip([2, 4], swept["comparisons"], strict=True):
            self.assertEqual(point, self.compare(*here, "--ranks", ranks))
        (level,) = swept["methods"]
        self.assertEqual(level["speedup"], [self.methods(point)["level"]["speedup"] for point in swept["comparisons"]])
        self.assertEqual(
            level["answers"], [self.methods(point)["level"]["verdict"]["answer"] for point in swept["comparisons"]]
        )
        self.assertRegex(swept["bottleneck"], r"^at 2 \w+ takes the largest part of plain EP's step \(\d+ %\)")


if __name__ == "__main__":
    unittest.main()
