"""Arrays and tables that nobody named: asked about by every command and by Python, and read as is said."""

import json
import unittest

import numpy as np
from kind_checks import KindsTest, Truth, truth_of_ids

import evenkeel as ek


class Axes(KindsTest):
    def test_ids_in_each_order(self):
        for name, axes, turn, layers, experts in [
            ("G_axes/tokens_k_layers.npy", "tokens,k,layers", (0, 2, 1), 16, 64),
            ("G_axes/layers_tokens_k.npy", "layers,tokens,k", (1, 0, 2), 16, 64),
        ]:
            with self.subTest("collected", name=name):
                path = self.case(name)
                ids = np.load(path).transpose(turn)
                self.assert_asked(path, f"{axes}: {layers} layers of {experts} experts, {len(ids)} tokens, top-8")
                self.assert_read(path, truth_of_ids(ids, experts), axes=axes)
        for axes, turn, tokens, layers, k, experts in [
            ("tokens,k,layers", (0, 2, 1), 40, 5, 3, 24),
            ("layers,tokens,k", (1, 0, 2), 300, 4, 2, 16),
            ("tokens,layers,k", (0, 1, 2), 70, 9, 6, 60),
        ]:
            ids = self.ids(tokens, layers, k, experts)
            for name in ("a.npy", "a.npz", "a.safetensors", "a.pt", "a.json"):
                with self.subTest(name, axes=axes):
                    path = self.write(name, np.ascontiguousarray(ids.transpose(turn)).astype(np.int32))
                    self.assert_asked(path, f"{axes}: {layers} layers of {experts} experts, {tokens} tokens, top-{k}")
                    self.assert_read(path, truth_of_ids(ids, experts), axes=axes)

    def test_counts_by_rank_and_local_expert(self):
        with self.subTest("collected"):
            path = self.case("G_axes/layers_ranks_local.npy")
            self.assert_asked(path, "layers,ranks,experts: 26 layers of 64 experts on 4 ranks")
            self.assert_read(path, Truth(np.load(path).reshape(26, 64)), ranks=4, axes="layers,ranks,experts")
        counts = self.loads(7, 30)
        path = self.write("a.npz", counts.reshape(7, 5, 6))
        self.assert_read(path, Truth(counts), axes="layers,ranks,experts")

    def test_columns_of_tables(self):
        with self.subTest("collected"):
            path = self.case("G_axes/token_layer_ids_without_header.csv")
            lines = np.loadtxt(path, int, delimiter=",")
            self.assert_asked(path, "or columns layer,k...: ")
            loads = [np.bincount(lines[lines[:, 0] == n, 1], minlength=16) for n in np.unique(lines[:, 0])]
            profile = self.call("profile", path, "--columns", "layer,k...", "-o", "p.npz")
            self.assertEqual(profile["layer_numbers"], np.unique(lines[:, 0]).tolist())
            np.testing.assert_array_equal(ek.RoutingProfile(path, columns="layer,k...").loads, loads)
        with self.subTest("collected, records"):
            path = self.case("G_axes/layer_then_ids.json")
            records = np.array(json.loads(path.read_text()))
            self.assert_asked(path, "layer,k...: 6 layers")
            ids = records[:, 1:].reshape(-1, 6, records.shape[1] - 1)
            self.assert_read(path, truth_of_ids(ids, 32, list(range(6))), columns="layer,k...")
        ids = self.ids(60, 3, 4, 16)
        lines = [(t, n, *row) for t, token in enumerate(ids) for n, row in zip((2, 5, 6), token, strict=True)]
        truth = truth_of_ids(ids, 16, [2, 5, 6])
        mixed = [lines[i] for i in self.draw.permutation(len(lines))]
        with self.subTest("without names"):
            self.assert_read(self.text("a.csv", lines), truth, columns="token,layer,k...")
            self.assert_read(self.text("b.csv", [line[1:] for line in lines]), truth, columns="layer,k...")
        with self.subTest("with names"):
            names = ("position", "layer_id", "k_0", "k_1", "k_2", "k_3")
            profile = ek.RoutingProfile(self.text("c.csv", [names, *mixed]))
            np.testing.assert_array_equal(profile.loads, truth.loads)
            self.assertEqual(profile.layers, truth.layers)

    def test_probabilities_are_no_counts(self):
        with self.subTest("collected"):
            path = self.case("G_axes/router_probabilities_L_T_E.npy")
            for words in ([], ["--as", "counts"], ["--axes", "layers,ranks,experts"]):
                error = self.refusal("profile", path, *words)
                self.assertEqual(error[0], "ParseError")
                self.assertIn("probabilities of tokens, not counts", error[1])

    def test_a_model_that_fits_in_one_order_says_it(self):
        config = {"model_type": "qwen3_moe", "num_hidden_layers": 5, "num_experts": 24, "num_experts_per_tok": 3}
        (self.folder / "config.json").write_text(json.dumps(config))
        ids = self.ids(40, 5, 3, 24)
        for axes, turn in [
            ("tokens,k,layers", (0, 2, 1)),
            ("layers,tokens,k", (1, 0, 2)),
            ("tokens,layers,k", (0, 1, 2)),
        ]:
            with self.subTest(axes=axes):
                path = self.write("a.npy", np.ascontiguousarray(ids.transpose(turn)))
                profile = self.call("profile", path, "--model", "config.json", "-o", "p.npz")
                self.assertEqual(profile["axes"], {str(path): axes})
                read = ek.RoutingProfile(path, model=self.folder / "config.json")
                self.assertEqual(read.axes, axes)
                np.testing.assert_array_equal(read.loads, truth_of_ids(ids, 24).loads)


if __name__ == "__main__":
    unittest.main()
