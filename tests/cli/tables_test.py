"""Tables of counts, and other systems' statistics and placements, through the command."""

import json
import unittest

from command import CommandTest
from tensor_files import Tensor, torch_file


class Tables(CommandTest):
    def text(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def test_a_long_table_is_placed_at_its_layers(self):
        lines = ["layer_id,expert_id,count"]
        lines += [f"{layer},{expert},{(7 * layer + 5 * expert) % 11 + 1}" for layer in (3, 4) for expert in range(8)]
        table = self.text("table.csv", "\n".join(lines) + "\n")
        profile = self.json("profile", table, "--ranks", 2)
        self.assertEqual((profile["num_layers"], profile["num_experts"]), (2, 8))
        self.json("convert", table, "p.json")
        self.assertEqual(self.json("convert", table, "p.npz")["layers"], [3, 4])
        loads = json.loads((self.folder / "p.json").read_text(encoding="utf-8"))["loads"]
        self.assertEqual(loads[1], [(28 + 5 * expert) % 11 + 1 for expert in range(8)])

    def test_statistics_of_vllm_are_loads(self):
        record = {"record_type": "eplb_load_stats", "version": 1, "num_ranks": 2}
        record |= {"expert_load": [[2, 12, 19, 15], [3, 26, 18, 18]], "p2l_map": [[0, 1, 2, 3], [0, 1, 2, 3]]}
        self.text("stats.jsonl", "".join(json.dumps(record | {"step": step}) + "\n" for step in (100, 200)))
        converted = self.json("convert", "stats.jsonl", "p.json")
        self.assertEqual((converted["what"], converted["from"]), ("statistics", "vllm"))
        loads = json.loads((self.folder / "p.json").read_text(encoding="utf-8"))["loads"]
        self.assertEqual(loads, [[4, 24, 38, 30], [6, 52, 36, 36]])

    def test_a_map_of_sglang_in_a_torch_file_is_a_placement(self):
        rows = [[0, 1, 2, 3, 0, 2], [3, 2, 1, 0, 3, 1]]
        for name, value in [("a.pt", {"physical_to_logical_map": Tensor.of_rows(rows)}),
                            ("b.pt", {"note": "mine", "physical_to_logical_map": Tensor.of_rows(rows)})]:  # fmt: skip
            (self.folder / name).write_bytes(torch_file(value))
            converted = self.json("convert", name, "ours.json", "--ranks", 2)
            self.assertEqual((converted["what"], converted["from"]), ("placement", "sglang"))
            ours = json.loads((self.folder / "ours.json").read_text(encoding="utf-8"))
            # A rank's experts ascend there.
            self.assertEqual(ours["physical_to_logical"], [[0, 1, 2, 0, 2, 3], [1, 2, 3, 0, 1, 3]])
            loads = self.write("loads.json", {"loads": [[9, 1, 1, 5], [1, 1, 1, 1]]})
            plan = ["plan", loads, "--placement", name, "--layer", 0, "--ranks", 2, "--planner", "ep"]
            self.assertEqual(sum(self.json(*plan)["rank_loads"]), 16)
            self.assert_refused(["profile", name], 3, "ParseError", "is a placement, not routing")
        (self.folder / "c.pt").write_bytes(torch_file({"physical_to_logical_map": [1, 2]}))
        self.assert_refused(
            ["convert", "c.pt", "o.json", "--ranks", 2], 3, "ParseError", "physical_to_logical_map", "not a tensor"
        )

    def test_a_bare_tensor_that_looks_like_a_map_is_asked_about(self):
        for rows in [[[0, 1, 2, 3], [3, 2, 1, 0]], [[0, 1, 0, 1, 2]], [list(range(80)) + [7, 9]]]:
            (self.folder / "map.pt").write_bytes(torch_file(Tensor.of_rows(rows)))
            self.assert_refused(["profile", "map.pt"], 2, "InvalidArgument", "--axes", "physical_to_logical_map")
            self.assertEqual(self.json("profile", "map.pt", "--as", "counts")["num_layers"], len(rows))

    def test_a_map_of_vllm_ascend_out_of_order_is_refused(self):
        def layer(number):
            devices = [{"device_id": i, "device_expert": [2 * i, 2 * i + 1]} for i in range(2)]
            return {"layer_id": number, "device_count": 2, "device_list": devices}

        for numbers, status in [([0, 1], 0), ([1, 0], 3), ([1, 1], 3), ([0, 2], 3)]:
            name = self.write("a.json", {"moe_layer_count": 2, "layer_list": [layer(n) for n in numbers]})
            self.assertEqual(self.call("convert", name, "o.json").returncode, status, numbers)


if __name__ == "__main__":
    unittest.main()
