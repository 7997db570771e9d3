"""evenkeel run --timeline: trace events in the documented format, which match --json.

The fields are those of "Trace Event Format" (Google). Phases, passes, chunks and the sum of
buffers are tested for the layer (tests/layer/timeline_test.cpp).
"""

from collections import defaultdict

from command import CommandTest

SMALL = ["--hidden", 48, "--intermediate", 40, "--min-segment", 4, "--imbalance-threshold", 1.3]
SKEWED = ["run", "--scenario", "concentrated:0.95:1", "--ranks", 4, "--tokens", 192, "--experts", 16, *SMALL]
ONCE = ["--repeat", 1]
CASES = [
    [],
    ["--backward"],
    ["--chunks", 3],
    ["--backward", "--chunks", "mact", "--bins", "1,5", "--budget", "1.5MiB"],
    ["--budget", "650KiB"],
    ["--backward", "--budget", "1.2MiB"],
    ["--backward", "--recompute", "whole"],
]

PHASES = ["plan", "dispatch", "transfer", "compute", "combine"]
AT = {"name": str, "ph": str, "pid": int, "tid": int}
TIMED = {**AT, "ts": float}
FIELDS = {
    "M": {**AT, "args": dict},
    "X": {**TIMED, "cat": str, "dur": float, "tdur": float},
    "s": {**TIMED, "cat": str, "id": int},
    "f": {**TIMED, "cat": str, "id": int, "bp": str},
    "C": {**TIMED, "args": dict},
}


class Timeline(CommandTest):
    def timeline(self, *words):
        """The --json result, and the trace's events by kind."""
        result = self.json(*words, "--timeline", "timeline.json")
        self.assertEqual(result["timeline"], "timeline.json")
        trace = self.file("timeline.json")
        self.assertEqual(list(trace), ["displayTimeUnit", "otherData", "traceEvents"])
        self.assertEqual(trace["displayTimeUnit"], "ms")
        self.assertEqual(list(trace["otherData"]), ["batch", "layer", "steps", "clock"])
        self.assertEqual({key: trace["otherData"][key] for key in ("batch", "layer")},
                         {key: result[key] for key in ("batch", "layer")})  # fmt: skip
        events = defaultdict(list)
        for event in trace["traceEvents"]:
            events[event["ph"]].append(event)
        return result, events

    def test_every_way_to_run_a_step(self):
        for words in CASES:
            with self.subTest(words=words):
                result, events = self.timeline(*SKEWED, *ONCE, *words)
                self.assert_events_have_their_fields(events)
                self.assert_processes_are_the_ranks_of_each_planner(result, events)
                self.assert_slices_nest_or_do_not_overlap(events)
                self.assert_slices_say_what_the_phases_took(result, events, "--backward" in words)
                self.assert_flows_are_the_transfers(result, events)
                self.assert_counters_reach_the_peaks_and_add_up(result, events)

    def assert_events_have_their_fields(self, events):
        self.assertLessEqual(set(events), set(FIELDS))
        for ph, fields in FIELDS.items():
            for event in events[ph]:
                kinds = {key: type(value) for key, value in event.items()}
                if ph == "X" and "args" in event:
                    self.assertEqual({key: type(value) for key, value in event["args"].items()}, {"chunk": int})
                    del kinds["args"]
                self.assertEqual(kinds, fields, event)
                for key in ("ts", "dur", "tdur"):
                    self.assertGreaterEqual(event.get(key, 0), 0, event)

    def assert_processes_are_the_ranks_of_each_planner(self, result, events):
        ranks = range(result["ranks"])
        names = {e["pid"]: e["args"]["name"] for e in events["M"] if e["name"] == "process_name"}
        expected = [f"{planner['planner']}: rank {rank}" for planner in result["planners"] for rank in ranks]
        self.assertEqual(list(names.values()), expected)
        order = {e["pid"]: e["args"]["sort_index"] for e in events["M"] if e["name"] == "process_sort_index"}
        self.assertEqual(sorted(order, key=order.get), list(names))
        threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events["M"] if e["name"] == "thread_name"}
        self.assertEqual(list(threads.values()), ["step"] * len(expected))
        self.assertEqual({(e["pid"], e["tid"]) for e in events["X"]}, set(threads))
        for ph in "sfC":
            self.assertLessEqual({(e["pid"], e["tid"]) for e in events[ph]}, set(threads))

    def assert_slices_nest_or_do_not_overlap(self, events):
        by_thread = defaultdict(list)
        for slice_ in events["X"]:
            by_thread[slice_["tid"]].append(slice_)
        for slices in by_thread.values():
            self.assertEqual(slices, sorted(slices, key=lambda e: e["ts"]))
            around = []
            for slice_ in slices:
                while around and around[-1] <= slice_["ts"]:
                    around.pop()
                if around:
                    self.assertLessEqual(slice_["ts"] + slice_["dur"], around[-1])
                around.append(slice_["ts"] + slice_["dur"])
                self.assertEqual(len(around), 1 if slice_["cat"] == "pass" else 2, slice_)
        begins = defaultdict(list)
        for slice_ in events["X"]:
            begins[self.planner_at(slice_, events)].append(slice_["ts"])
        self.assertEqual({min(times) for times in begins.values()}, {0})

    def planner_at(self, event, events):
        names = {e["pid"]: e["args"]["name"] for e in events["M"] if e["name"] == "process_name"}
        return names[event["pid"]].split(":")[0]

    def assert_slices_say_what_the_phases_took(self, result, events, backward):
        passes = ["forward", "backward"] if backward else ["forward"]
        ranks = result["ranks"]
        for at, planner in enumerate(result["planners"]):
            pids = range(at * ranks + 1, (at + 1) * ranks + 1)
            cpu = defaultdict(float)  # by phase, pass and rank
            chunks = defaultdict(set)
            for pid in pids:
                slices = [e for e in events["X"] if e["pid"] == pid]
                self.assertEqual([e["name"] for e in slices if e["cat"] == "pass"], passes)
                for slice_ in slices:
                    if slice_["cat"] == "pass":
                        now = slice_
                        continue
                    self.assertEqual(slice_["cat"], "phase")
                    cpu[slice_["name"], now["name"], pid] += slice_["tdur"]
                    if "chunk" in slice_.get("args", {}):
                        chunks[now["name"]].add(slice_["args"]["chunk"])
                for of_pass in (e for e in slices if e["cat"] == "pass"):
                    parts = sum(cpu[phase, of_pass["name"], pid] for phase in PHASES)
                    self.assertAlmostEqual(of_pass["tdur"], parts, places=3)
                self.assertLessEqual(max(e["ts"] + e["dur"] for e in slices), 1e3 * planner["wall_ms"] + 0.125)
            for phase, took in planner["phases_ms"].items():
                most = sum(max(cpu[phase, name, pid] for pid in pids) for name in passes)
                self.assertAlmostEqual(most, 1e3 * took, places=3)
            self.assertEqual(chunks["forward"], set(range(planner["chunks"])))

    def assert_flows_are_the_transfers(self, result, events):
        starts, finishes = ({e["id"]: e for e in events[ph]} for ph in "sf")
        self.assertEqual(len(starts), len(events["s"]))
        self.assertEqual(set(starts), set(finishes))
        transfers = {planner["planner"]: 0 for planner in result["planners"]}
        arrows = set()
        for start, finish in ((starts[i], finishes[i]) for i in starts):
            self.assertEqual(finish["bp"], "e")
            self.assertEqual((start["name"], start["cat"]), (finish["name"], finish["cat"]))
            self.assertRegex(start["name"], r"\Aexpert \d+\Z")
            self.assertNotEqual(start["pid"], finish["pid"])
            self.assertEqual(self.planner_at(start, events), self.planner_at(finish, events))
            self.assertLessEqual(start["ts"], finish["ts"])
            # Without a placement, rank r is home to the r-th part of the experts.
            home = (start["pid"] - 1) % result["ranks"]
            self.assertEqual(int(start["name"].split()[1]) // 4, home)
            transfers[self.planner_at(start, events)] += 1
            arrows.add((start["name"], start["pid"], finish["pid"]))
            lends, begins = self.slices_at(start, events), self.slices_at(finish, events)
            self.assertEqual([e["name"] for e in lends], ["forward", "transfer"])
            self.assertEqual([e["cat"] for e in begins], ["pass", "phase"])
            borrows = [e for e in events["X"] if e["tid"] == finish["tid"] and e["ts"] + e["dur"] == finish["ts"]]
            self.assertEqual([e["name"] for e in borrows], ["transfer"])
            # Perfetto reverses an arrow whose target slice begins earlier.
            self.assertLessEqual(lends[-1]["ts"], begins[-1]["ts"])
        self.assertEqual(len(arrows), len(starts))
        self.assertEqual(transfers, {planner["planner"]: planner["transfers"] for planner in result["planners"]})
        self.assertGreater(transfers["level"], 0)

    def slices_at(self, end, events):
        of_thread = (e for e in events["X"] if e["tid"] == end["tid"])
        return [e for e in of_thread if e["ts"] <= end["ts"] < e["ts"] + e["dur"]]

    def assert_counters_reach_the_peaks_and_add_up(self, result, events):
        peaks = [bytes_ for planner in result["planners"] for bytes_ in planner["peak_bytes"]]
        held = defaultdict(dict)  # by rank and name
        most = defaultdict(int)
        for counter in events["C"]:
            self.assertEqual(list(counter["args"]), ["bytes"])
            value = counter["args"]["bytes"]
            self.assertIs(type(value), int)
            held[counter["pid"]][counter["name"]] = value
            most[counter["pid"], counter["name"]] = max(most[counter["pid"], counter["name"]], value)
        self.assertEqual([most[pid, "memory"] for pid in held], peaks)
        for pid, at_last in held.items():
            parts = {name: value for name, value in at_last.items() if name != "memory"}
            self.assertTrue(all(name.startswith("memory: ") for name in parts))
            self.assertEqual(sum(parts.values()), at_last["memory"])
            self.assertGreaterEqual(sum(most[pid, name] for name in parts), most[pid, "memory"])
        # Allocating or freeing a buffer changes the sum and the counter of the buffer's name at the same time.
        for pid in held:
            of_rank = [e for e in events["C"] if e["pid"] == pid]
            all_bytes = [e["ts"] for e in of_rank if e["name"] == "memory"]
            of_names = {e["ts"] for e in of_rank if e["name"] != "memory"}
            self.assertEqual(set(all_bytes) - {0}, of_names - {0})

    def test_the_last_of_several_steps_is_shown(self):
        result, events = self.timeline(*SKEWED, "--repeat", 3)
        self.assert_slices_nest_or_do_not_overlap(events)
        self.assert_flows_are_the_transfers(result, events)

    def test_a_step_without_tokens_has_phases_all_the_same(self):
        words = ["run", "--scenario", "balanced", "--ranks", 2, "--tokens", 0, "--experts", 4, *SMALL, *ONCE]
        result, events = self.timeline(*words)
        self.assert_events_have_their_fields(events)
        self.assert_slices_say_what_the_phases_took(result, events, backward=False)
        self.assert_counters_reach_the_peaks_and_add_up(result, events)
        self.assertEqual(events["s"], [])

    def test_people_are_told_what_opens_the_file(self):
        self.assertTrue(self.shown(*SKEWED, *ONCE, "--timeline", "t.json").endswith(
            "\ntimeline in t.json, for ui.perfetto.dev or chrome://tracing\n"))  # fmt: skip
        self.assertEqual([path.name for path in self.folder.iterdir()], ["t.json"])

    def test_a_file_that_cannot_be_written_is_refused_at_once(self):
        (self.folder / "folder").mkdir()
        placement = self.write("p.json", {})
        for file, status, why in [
            ("folder", 4, "folder: cannot be written: Is a directory"),
            ("no/such/folder.json", 4, "no/such/folder.json: cannot be written"),
            (placement, 2, "--timeline: p.json is a file that is read"),
        ]:
            words = [*SKEWED, "--placement", placement, "--timeline", file]
            self.assert_refused(words, status, "InvalidArgument", why)
        self.assertEqual(self.file(placement), {})

    def test_it_is_refused_where_no_step_is_looked_at_or_a_value_is_missing(self):
        loads = self.write("loads.json", {"loads": [3, 1]})
        for words in [["bench"], ["demo"], ["plan", loads, "--ranks", 2], ["memory", "--model", "config.json"]]:
            self.assert_refused([*words, "--timeline", "t.json"], 2, "InvalidArgument", "--timeline")
        self.assert_refused([*SKEWED, "--timeline"], 2, "InvalidArgument", "--timeline")
        self.assert_refused([*SKEWED, "--timeline="], 2, "InvalidArgument", "--timeline")
