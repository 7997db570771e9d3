"""Files that tell their steps apart are judged step by step: each is written from the same random counts, and what
read_steps(), evaluate() and the command say of it is recomputed from those."""

import json
import subprocess
import unittest

import numpy as np
from support import COMMAND, RECORDINGS, PackageTest
from tensor_files import Tensor, safetensors

import evenkeel as ek

try:
    import torch
except ImportError:
    torch = None

STEPS, LAYERS, EXPERTS, RANKS = 21, 3, 16, 4


def drawn_counts(seed, steps=STEPS, layers=LAYERS, experts=EXPERTS):
    """[steps, layers, experts]; the hot experts of a step are not those of another."""
    draw = np.random.default_rng(seed)
    counts = draw.lognormal(3, 1.2, (steps, layers, experts)).astype(np.int64)
    return counts * (draw.random((steps, layers, experts)) < 0.8)


def figures_of(counts, ranks=RANKS):
    """Of contiguous homes: the mean over layers with load of max/mean, over the steps with load."""
    loads = counts.reshape(*counts.shape[:2], ranks, -1).sum(axis=3).astype(float)
    ratios = []
    for step in loads:
        layers = step[step.sum(axis=1) > 0]
        if len(layers):
            ratios.append((layers.max(axis=1) / layers.mean(axis=1)).mean())
    ordered = np.sort(ratios)
    return {
        "median": np.median(ordered),
        "p95": ordered[int(np.ceil(0.95 * len(ordered))) - 1],
        "worst": ordered[-1],
    }


def split(counts, parts, seed):
    """`parts` arrays that add up to the counts, as ranks would have counted them."""
    draw = np.random.default_rng(seed)
    rest, all_parts = counts.copy(), []
    for _ in range(parts - 1):
        all_parts.append(draw.integers(0, rest + 1))
        rest = rest - all_parts[-1]
    return [*all_parts, rest]


def long_table(counts, column="step"):
    """A line for each number; nothing is said of those that are 0."""
    rows = [(s, l, e, counts[s, l, e]) for s, l, e in np.ndindex(counts.shape) if counts[s, l, e] > 0]
    return f"{column},layer,expert,count\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


class StepsTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.counts = drawn_counts(1)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def command(self, *words):
        done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assert_steps(self, path, counts, ranks=RANKS):
        """Steps in any order, layers and experts in theirs."""
        read = np.array([step.loads for step in ek.read_steps(path)])
        self.assertEqual(read.shape, counts.shape)
        np.testing.assert_array_equal(sorted(read.tolist()), sorted(counts.tolist()))
        profile = ek.RoutingProfile(path)
        np.testing.assert_array_equal(profile.loads, counts.sum(axis=0))
        homes = ek.Placement.contiguous(counts.shape[1], counts.shape[2], ranks)
        said = ek.evaluate(path, homes, ranks)["placements"][0]["results"][0]
        expected = figures_of(counts, ranks)
        for name, figure in expected.items():
            self.assertAlmostEqual(said["steps"][name], figure, places=12, msg=name)
        if not COMMAND:
            return
        homes.save(self.folder / "homes.json")
        printed = self.command("evaluate", path, "--placement", self.folder / "homes.json", "--ranks", ranks)
        self.assertEqual(printed["placements"][0]["results"][0]["steps"], said["steps"])
        placed = self.command("place", path, "--ranks", ranks, "--steps")
        before = [each["before"]["max_over_mean_mean"] for each in placed["per_recording"]]
        loads = counts.reshape(*counts.shape[:2], ranks, -1).sum(axis=3).astype(float)
        means = np.maximum(loads.mean(axis=2), 1e-300)
        whole = np.where(loads.sum(axis=2) > 0, loads.max(axis=2) / means, 1).mean(axis=1)
        np.testing.assert_allclose(sorted(before), sorted(whole), rtol=1e-12)

    def assert_no_steps(self, path):
        self.assertEqual(ek.read_steps(path), [])
        profile = ek.RoutingProfile(path)
        homes = ek.Placement.contiguous(profile.num_layers, profile.num_experts, 2)
        self.assertIsNone(ek.evaluate(path, homes, 2)["placements"][0]["results"][0]["steps"])


class Steps(StepsTest):
    def test_arrays_and_lists(self):
        np.savez(self.folder / "w.npz", counts=self.counts)
        self.assert_steps(self.folder / "w.npz", self.counts)
        self.assert_steps(self.write("w.json", json.dumps({"logical_count": self.counts.tolist()})), self.counts)

    def test_tables(self):
        rows = [
            (step, rank, layer, expert, part[step, layer, expert])
            for rank, part in enumerate(split(self.counts, 2, 2))
            for step, layer, expert in np.ndindex(part.shape)
        ]
        np.random.default_rng(3).shuffle(rows)
        text = "iteration,rank,layer,expert,count\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
        self.assert_steps(self.write("ranks.csv", text), self.counts)
        for column in ["step", "Forward Pass", "batch"]:
            self.assert_steps(self.write("long.csv", long_table(self.counts, column)), self.counts)
        head = "\t".join(f"expert_{e}" for e in range(EXPERTS))
        wide = [
            "\t".join(map(str, [100 * step, layer, *self.counts[step, layer]]))
            for step in range(STEPS)
            for layer in range(LAYERS)
        ]
        self.assert_steps(self.write("wide.tsv", f"step\tlayer\t{head}\n" + "\n".join(wide)), self.counts)
        by_layer = [
            ",".join(map(str, [step, expert, *self.counts[step, :, expert]]))
            for step in range(STEPS)
            for expert in range(EXPERTS)
        ]
        named = "step,expert," + ",".join(f"layer_{layer}" for layer in range(LAYERS))
        message = "line 1: column 'layer_0' is of one layer; write a line for each layer"
        self.assert_raises(
            ek.ParseError, message, ek.read_steps, self.write("layers.csv", named + "\n" + "\n".join(by_layer))
        )
        # One layer, whose lines an index counts, as pandas writes it.
        one = [",".join(map(str, [step, step, *self.counts[step, 0]])) for step in range(STEPS)]
        text = ",step," + ",".join(f"expert_{e}" for e in range(EXPERTS)) + "\n" + "\n".join(one)
        self.assert_steps(self.write("one.csv", text), self.counts[:, :1])

    def test_several_columns_say_a_step_together(self):
        head, *rows = long_table(self.counts).splitlines(keepends=True)
        two = [f"{int(step) // 4},{int(step) % 4},{rest}" for step, _, rest in (row.partition(",") for row in rows)]
        text = head.replace("step", "iteration,batch") + "".join(two)
        self.assert_steps(self.write("both.csv", text), self.counts)

    def test_counts_that_are_not_whole_stay_in_proportion(self):
        self.assert_steps(self.write("eighths.csv", long_table(self.counts / 8)), self.counts)

    def test_a_layer_that_a_step_leaves_out_has_no_load_there(self):
        self.counts[4, 1] = self.counts[9] = 0
        without = np.delete(self.counts, 9, axis=0)  # of which no line speaks
        self.assert_steps(self.write("holes.csv", long_table(self.counts)), without)

    def test_lines_of_json(self):
        parts = split(self.counts, 3, 4)
        wide = [
            {"step": step, "rank": rank, "layer": layer, "counts": part[step, layer].tolist()}
            for step in range(STEPS)
            for rank, part in enumerate(parts)
            for layer in range(LAYERS)
        ]
        self.assert_steps(self.write("wide.jsonl", lines(wide)), self.counts)
        whole = [
            {"step": step, "rank": rank, "logical_count": part[step].tolist()}
            for rank, part in enumerate(parts)
            for step in range(STEPS)
        ]
        self.assert_steps(self.write("whole.jsonl", lines(whole)), self.counts)
        # Windows of steps: dumped one after the other, or by each rank.
        dumps = [{"step": at, "expert_load": self.counts[at : at + 7].tolist()} for at in range(0, STEPS, 7)]
        self.assert_steps(self.write("dumps.jsonl", lines(dumps)), self.counts)
        ranks = [{"rank": rank, "expert_load": part.tolist()} for rank, part in enumerate(parts)]
        self.assert_steps(self.write("ranks.jsonl", lines(ranks)), self.counts)

    def test_what_does_not_say_its_steps_has_none(self):
        two = self.counts[:2]
        for name, text in [
            ("ranks.csv", "rank,layer,expert,count\n0,0,0,3\n0,0,1,4\n1,0,0,5\n1,0,1,6\n"),
            ("times.csv", "timestamp,layer,expert,count\n10,0,0,3\n10,0,1,4\n11,0,0,5\n11,0,1,6\n"),
            ("plain.csv", "layer,expert,count\n0,0,3\n0,1,4\n"),
            ("dumps.jsonl", lines({"logical_count": counts.tolist()} for counts in two)),
        ]:
            with self.subTest(name):
                self.assert_no_steps(self.write(name, text))

    def test_steps_that_nobody_can_tell_apart_are_asked_about(self):
        lists = self.counts[0].tolist()
        one = {"step": 1, "expert_load": lists}
        for name, records, message in [
            ("windows", [{"expert_load": [lists, lists]}] * 2, "has a step that a line before has too"),
            ("twice", [one, one], "has a step that a line before has too"),
            ("missing", [one, {"expert_load": lists}], "says its step nowhere, where the first says it under 'step'"),
            ("another", [one, {"iteration": 2, "expert_load": lists}],
             "says its step under 'iteration', where the first says it under 'step'"),
            ("mixed", [{"expert_load": [lists]}, {"expert_load": lists}],
             "says its step nowhere, where the first says it by its place in the list"),
        ]:  # fmt: skip
            with self.subTest(name):
                path = self.write("w.jsonl", lines(records))
                self.assert_raises(ek.ParseError, f"w.jsonl: line 2: {message}", ek.read_steps, path)
                self.assertEqual(ek.RoutingProfile(path).num_experts, EXPERTS)  # as a whole it is plain
        sparse = "".join(f"{step},{step % 60},{step % 250},1\n" for step in range(3000))
        path = self.write("sparse.csv", "step,layer,expert,count\n" + sparse)
        self.assert_raises(
            ek.ParseError, "has few numbers (3000) for 3000 steps of 60 layers of 250 experts", ek.read_steps, path
        )

    def test_records_of_vllm_are_steps(self):
        draw = np.random.default_rng(5)
        records = []
        for step in range(STEPS):
            # Numbers begin anew when experts are rearranged, with another map.
            maps = [draw.permutation([*range(EXPERTS), *draw.integers(0, EXPERTS, 4)]) for _ in range(LAYERS)]
            load = np.zeros((LAYERS, EXPERTS + 4), np.int64)
            for layer, experts in enumerate(maps):
                for expert in range(EXPERTS):
                    slots = np.flatnonzero(experts == expert)
                    load[layer, slots[-1]] = self.counts[step, layer, expert]
                    if len(slots) > 1:
                        load[layer, slots[0]] = load[layer, slots[-1]] // 3
                        load[layer, slots[-1]] -= load[layer, slots[0]]
            p2l = [experts.tolist() for experts in maps]
            record = {"record_type": "eplb_load_stats", "version": 1, "step": step % 8, "p2l_map": p2l}
            records += [record | {"expert_load": load.tolist()}, {"record_type": "other"}]
        self.assert_steps(self.write("stats.jsonl", lines(records)), self.counts)

    def test_records_that_vllm_writes(self):
        path = self.case("B11_vllm_stats/eplb_data.jsonl")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        counts = np.array([record["expert_load"] for record in records])  # whose maps change nothing
        self.assert_steps(path, counts, ranks=2)

    def test_iterations_of_tensorrt_llm_are_steps(self):
        parts = split(self.counts, 2, 6)
        for rank, part in enumerate(parts):
            arrays = {f"{40 + step}_{3 + layer}": part[step, layer] for step in range(STEPS) for layer in range(LAYERS)}
            self.write("stats/meta_info.json", json.dumps({"num_experts": EXPERTS}))
            (self.folder / "stats" / f"rank{rank}.safetensors").write_bytes(
                safetensors({name: Tensor.of(each) for name, each in arrays.items()})
            )
        self.assert_steps(self.folder / "stats", self.counts)
        self.assertEqual(ek.read_steps(self.folder / "stats")[0].layers, [3, 4, 5])
        self.assert_steps(self.folder / "stats" / "rank1.safetensors", parts[1])

    def test_micro_batches_of_megatron_are_steps(self):
        draw = np.random.default_rng(7)
        micro, tokens, k = 3, 12, 2
        expected = np.zeros((4 * micro, LAYERS, EXPERTS), np.int64)
        for rank in range(2):
            records = []
            for step in range(4):
                for nth in range(micro):
                    for layer in range(LAYERS):
                        ids = draw.integers(0, EXPERTS, (tokens, k))
                        ids[0, 0] = 15  # so that the largest id is there
                        np.add.at(expected[step * micro + nth, layer], ids.ravel(), 1)
                        of_line = {"rank": rank, "step": 100 + step, "layer": layer, "num_tokens": tokens, "topk": k}
                        records.append(of_line | {"top_indices": ids.tolist()})
            self.write(f"router/router_trace_rank{rank}.jsonl", lines(records))
        self.assert_steps(self.folder / "router", expected)
        # Windows, where somebody asks for them.
        self.assertEqual(len(ek.read_steps(self.folder / "router", step_tokens=36)), 2 * 4 * micro * tokens // 36)


@unittest.skipIf(torch is None, "torch is not installed")
class StepsOfSglang(StepsTest):
    def physical(self, seed):
        """[layers, physical]: a map with four copies, and the counts by it."""
        draw = np.random.default_rng(seed)
        maps = np.stack([draw.permutation([*range(EXPERTS), *draw.integers(0, EXPERTS, 4)]) for _ in range(LAYERS)])
        return maps

    def by_pass(self, counts, maps):
        load = np.zeros((len(counts), *maps.shape), np.int64)
        for layer, experts in enumerate(maps):
            for expert in range(EXPERTS):
                load[:, layer, np.flatnonzero(experts == expert)[0]] = counts[:, layer, expert]
        return load

    def save(self, name, records, maps):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        torch.save({"records": records, "last_physical_to_logical_map": torch.tensor(maps)}, path)
        return path

    def records(self, loads, rank=0, first=10, **more):
        return [
            {"forward_pass_id": first + n, "rank": rank, "gatherer_key": "primary"}
            | {"global_physical_count": torch.tensor(load, dtype=torch.int32)}
            | more
            for n, load in enumerate(loads)
        ]

    def test_the_buffer_of_mode_stat_is_by_step(self):
        buffer = np.concatenate([self.counts, np.zeros_like(self.counts[:5])])  # not full
        path = self.folder / "expert_distribution_recorder_1.0.pt"
        torch.save({"rank": 0, "logical_count": torch.tensor(buffer, dtype=torch.int32)}, path)
        self.assert_steps(path, buffer)

    def test_what_stands_beside_counts_counts(self):
        path, counts = self.folder / "c.pt", torch.tensor([[3, 4], [5, 1]])
        for layers in ([3, 7], torch.tensor([3, 7])):
            torch.save({"counts": counts, "layers": layers, "num_experts": 2}, path)
            self.assertEqual(ek.RoutingProfile(path).layers, [3, 7])
        for said in ({"layers": [3]}, {"num_experts": 9}, {"weight": counts}):
            torch.save({"counts": counts} | said, path)
            with self.assertRaisesRegex(ek.ParseError, next(iter(said))):
                ek.RoutingProfile(path)

    def test_dumps_of_mode_stat_follow_each_other(self):
        (self.folder / "dumps").mkdir()
        for i, part in enumerate((self.counts[:9], self.counts[9:])):
            path = self.folder / "dumps" / f"expert_distribution_recorder_{i}.0.pt"
            torch.save({"rank": 0, "logical_count": torch.tensor(part, dtype=torch.int32)}, path)
        self.assert_steps(self.folder / "dumps", self.counts)

    def test_passes_of_one_rank_are_steps(self):
        maps = self.physical(8)
        path = self.save("r.pt", self.records(self.by_pass(self.counts, maps)), maps)
        self.assert_steps(path, self.counts)

    def test_a_pass_of_several_ranks_is_one_step(self):
        maps, parts = self.physical(9), split(self.counts, 2, 10)
        for rank, part in enumerate(parts):
            records = self.records(self.by_pass(part, maps), rank)
            # A draft model's pass has a number of its own that may be met again, and no load.
            records.append(records[3] | {"global_physical_count": torch.zeros(maps.shape, dtype=torch.int32)})
            self.save(f"ranks/expert_distribution_recorder_1.0_{rank}.pt", records, maps)
        self.assert_steps(self.folder / "ranks", self.counts)

    def test_tokens_are_by_pass(self):
        draw = np.random.default_rng(11)
        maps, k = self.physical(12), 3
        expected = np.zeros((6, LAYERS, EXPERTS), np.int64)
        for rank in range(2):
            records = []
            for n in range(6):
                ids = draw.integers(0, maps.shape[1], (LAYERS, 5 + 3 * n, 8))
                ids[:, :, k:] = -1
                ids[:, 0, 0] = [np.flatnonzero(row == EXPERTS - 1)[0] for row in maps]
                for layer in range(LAYERS):
                    np.add.at(expected[n, layer], maps[layer][ids[layer, :, :k].ravel()], 1)
                records += self.records([np.zeros(maps.shape)], rank, 7 + n, topk_ids_of_layer=torch.tensor(ids))
            self.save(f"tokens/expert_distribution_recorder_1.0_{rank}.pt", records, maps)
            if rank == 0:
                path = self.folder / "tokens" / "expert_distribution_recorder_1.0_0.pt"
                self.assert_steps(path, expected)
                self.assertEqual(len(ek.read_steps(path, step_tokens=25)), sum(5 + 3 * n for n in range(6)) // 25)
        self.assert_steps(self.folder / "tokens", expected)

    def test_passes_that_cannot_be_told_apart_are_asked_about(self):
        maps = self.physical(13)
        loads = self.by_pass(self.counts[:3], maps)
        numbered = self.records(loads)
        bare = [{"global_physical_count": record["global_physical_count"]} for record in numbered]
        self.assert_steps(self.save("bare.pt", bare, maps), self.counts[:3])
        for name, message in [
            ("twice", "records[3]: is forward pass 10 of rank 0, as "),
            ("missing", "records[3].forward_pass_id: is missing here and there in"),
        ]:
            records = [*numbered, (numbered if name == "twice" else bare)[0]]
            path = self.save(f"{name}.pt", records, maps)
            self.assert_raises(ek.ParseError, message, ek.read_steps, path)
            self.assertEqual(ek.RoutingProfile(path).num_experts, EXPERTS)
        for name, records, message in [
            ("runs", numbered, "they are of two runs; read each run apart"),
            ("bare", bare, "records[0].forward_pass_id: is missing here and missing in "),
        ]:
            for i in range(2):
                self.save(f"{name}/expert_distribution_recorder_{i}.0_0.pt", records, maps)
            error = self.assert_raises(ek.ParseError, message, ek.read_steps, self.folder / name)
            self.assertIn("expert_distribution_recorder_1.0_0.pt", str(error))

    def test_few_records_ask_for_no_space_for_many_experts(self):
        maps = np.array([[60000, *range(3)]])
        records = self.records(np.ones((400, 1, 4)))
        path = self.save("wide.pt", records, maps)
        self.assert_raises(ek.ParseError, "1 layer of 60001 experts", ek.read_steps, path)


class StepsOfShippedRecordings(PackageTest):
    def test_modes_of_sglang(self):
        s, l, e = np.meshgrid(range(3), range(1, 4), range(6), indexing="ij")
        stat = (7 * s + 5 * l + 3 * e) % 11
        read = np.array([step.loads for step in ek.read_steps(RECORDINGS / "sglang_stat.pt")])
        np.testing.assert_array_equal(read, stat)
        passes = np.zeros((3, 3, 6), np.int64)
        for n, layer, p in np.ndindex(3, 3, 8):
            passes[n, layer, (layer + 1 + p) % 6] += (5 * n + 3 * (layer + 1) + p) % 7
        read = np.array([step.loads for step in ek.read_steps(RECORDINGS / "sglang_per_pass.pt")])
        np.testing.assert_array_equal(read, passes)
        steps = ek.read_steps(RECORDINGS / "sglang_per_token.pt")
        self.assertEqual([step.loads.sum() for step in steps], [3 * 3 * 2, 2 * 3 * 2])
        self.assertEqual(steps[0].layers, [1, 2, 3])


if __name__ == "__main__":
    unittest.main()
