"""Files with separate steps are judged step by step, by read_steps(), evaluate() and the command.

Which files have separate steps is tested in the library (tests/io/steps_test.cpp and sglang_recording_test.cpp). Here,
SGLang's recordings are tested with several files or a damaged one.
"""

import numpy as np
from support import COMMAND, PackageTest, command_output
from tensor_files import Tensor, torch_file

import evenkeel as ek

STEPS, LAYERS, EXPERTS, RANKS = 21, 3, 16, 4


def drawn_counts(seed):
    """[steps, layers, experts]; each step has other hot experts."""
    draw = np.random.default_rng(seed)
    counts = draw.lognormal(3, 1.2, (STEPS, LAYERS, EXPERTS)).astype(np.int64)
    return counts * (draw.random(counts.shape) < 0.8)


def max_over_mean(counts):
    """[steps, layers]: max/mean under contiguous homes."""
    loads = counts.reshape(*counts.shape[:2], RANKS, -1).sum(axis=3)
    return loads.max(axis=2) / loads.mean(axis=2)


class Steps(PackageTest):
    def test_are_judged_one_by_one(self):
        counts, path = drawn_counts(1), self.folder / "w.npz"
        np.savez(path, counts=counts)
        np.testing.assert_array_equal([step.loads for step in ek.read_steps(path)], counts)
        np.testing.assert_array_equal(ek.RoutingProfile(path).loads, counts.sum(axis=0))
        ordered = np.sort(max_over_mean(counts).mean(axis=1))
        homes = ek.Placement.contiguous(LAYERS, EXPERTS, RANKS)
        said = ek.evaluate(path, homes, RANKS)["placements"][0]["results"][0]["steps"]
        figures = [np.median(ordered), ordered[int(np.ceil(0.95 * STEPS)) - 1], ordered[-1]]
        np.testing.assert_allclose(list(said.values()), figures, rtol=1e-12)
        if not COMMAND:
            return
        placed = command_output("place", path, "--ranks", RANKS, "--steps")
        before = [each["before"]["max_over_mean_mean"] for each in placed["per_recording"]]
        np.testing.assert_allclose(before, max_over_mean(counts).mean(axis=1), rtol=1e-12)

    def test_are_none_of_a_file_that_says_none(self):
        (self.folder / "plain.csv").write_text("layer,expert,count\n0,0,3\n0,1,4\n")
        self.assertEqual(ek.read_steps(self.folder / "plain.csv"), [])
        homes = ek.Placement.contiguous(1, 2, 2)
        said = ek.evaluate(self.folder / "plain.csv", homes, 2)["placements"][0]["results"][0]
        self.assertIsNone(said["steps"])


class OfSglang(PackageTest):
    """Recordings of physical experts: a map with four copies in each layer, and counts by that map."""

    def setUp(self):
        super().setUp()
        draw = np.random.default_rng(8)
        self.maps = np.stack([draw.permutation([*range(EXPERTS), *range(4)]) for _ in range(LAYERS)])

    def by_pass(self, counts):
        """Converts counts by expert to counts by physical expert: the first copy gets everything."""
        first = np.stack([[np.flatnonzero(row == e)[0] for e in range(EXPERTS)] for row in self.maps])
        loads = np.zeros((len(counts), *self.maps.shape), np.int64)
        np.put_along_axis(loads, np.broadcast_to(first, counts.shape), counts, axis=2)
        return loads

    def records(self, loads, rank=0, first=10, **more):
        return [
            {"forward_pass_id": first + n, "rank": rank, "gatherer_key": "primary"}
            | {"global_physical_count": Tensor.of(load.astype(np.int32))}
            | more
            for n, load in enumerate(loads)
        ]

    def save(self, name, records):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(torch_file({"records": records, "last_physical_to_logical_map": Tensor.of(self.maps)}))
        return path

    def assert_steps(self, path, counts):
        np.testing.assert_array_equal([step.loads for step in ek.read_steps(path)], counts)

    def test_a_pass_of_several_ranks_is_one_step(self):
        counts = drawn_counts(9)
        part = np.random.default_rng(10).integers(0, counts + 1)
        for rank, of_rank in enumerate((part, counts - part)):
            records = self.records(self.by_pass(of_rank), rank)
            # A draft model's pass has its own number, which may repeat another pass's, and no load.
            records += self.records([np.zeros(self.maps.shape)], rank, first=13)
            self.save(f"ranks/expert_distribution_recorder_1.0_{rank}.pt", records)
        self.assert_steps(self.folder / "ranks", counts)

    def test_tokens_of_several_ranks_are_by_pass(self):
        draw, k = np.random.default_rng(11), 3
        expected = np.zeros((6, LAYERS, EXPERTS), np.int64)
        for rank in range(2):
            records = []
            for n in range(6):
                ids = draw.integers(0, self.maps.shape[1], (LAYERS, 5 + 3 * n, 8))
                ids[:, :, k:] = -1
                ids[:, 0, 0] = [np.flatnonzero(row == EXPERTS - 1)[0] for row in self.maps]
                for layer in range(LAYERS):
                    np.add.at(expected[n, layer], self.maps[layer][ids[layer, :, :k].ravel()], 1)
                no_counts = [np.zeros(self.maps.shape)]
                records += self.records(no_counts, rank, 7 + n, topk_ids_of_layer=Tensor.of(ids))
            path = self.save(f"tokens/expert_distribution_recorder_1.0_{rank}.pt", records)
        self.assert_steps(self.folder / "tokens", expected)
        self.assertEqual(len(ek.read_steps(path, step_tokens=25)), sum(5 + 3 * n for n in range(6)) // 25)

    def test_passes_that_cannot_be_told_apart_are_asked_about(self):
        counts = drawn_counts(13)[:3]
        numbered = self.records(self.by_pass(counts))
        bare = [{"global_physical_count": record["global_physical_count"]} for record in numbered]
        self.assert_steps(self.save("bare.pt", bare), counts)
        for records, message in [
            ([*numbered, numbered[0]], "records[3]: is forward pass 10 of rank 0, but so is "),
            ([*numbered, bare[0]], "records[3].forward_pass_id: is missing here and present in"),
        ]:
            path = self.save("again.pt", records)
            self.assert_raises(ek.ParseError, message, ek.read_steps, path)
            self.assertEqual(ek.RoutingProfile(path).num_experts, EXPERTS)
        for i in range(2):
            self.save(f"bare/expert_distribution_recorder_{i}.0_0.pt", bare)
        message = "records[0].forward_pass_id: is missing here and missing in "
        error = self.assert_raises(ek.ParseError, message, ek.read_steps, self.folder / "bare")
        self.assertIn("expert_distribution_recorder_1.0_0.pt", str(error))

    def test_few_records_ask_for_no_space_for_many_experts(self):
        self.maps = np.array([[60000, *range(3)]])
        path = self.save("wide.pt", self.records(np.ones((400, 1, 4))))
        self.assert_raises(ek.ParseError, "1 layer of 60001 experts", ek.read_steps, path)

    def test_what_stands_beside_counts_counts(self):
        path, counts = self.folder / "c.pt", Tensor((2, 2), [3, 4, 5, 1])
        for layers in ([3, 7], Tensor((2,), [3, 7])):
            path.write_bytes(torch_file({"counts": counts, "layers": layers, "num_experts": 2}))
            self.assertEqual(ek.RoutingProfile(path).layers, [3, 7])
        for said in ({"layers": [3]}, {"num_experts": 9}, {"weight": counts}):
            path.write_bytes(torch_file({"counts": counts} | said))
            with self.assertRaisesRegex(ek.ParseError, next(iter(said))):
                ek.RoutingProfile(path)
