"""evenkeel permute: what it prints, and what is left when it is killed. Permutations: tests/io/checkpoint."""

import contextlib
import json
import os
import pty
import random
import resource
import shutil
import signal
import struct
import time

from command import UTF8, CommandTest

EXPERTS = 8
KEYS = [
    "checkpoint", "output", "family", "layers", "kept_layers", "num_experts", "num_ranks", "files", "bytes", "tensors",
    "other_weights", "leftovers",
]  # fmt: skip


def write_checkpoint(folder, layers, expert_bytes=32, stacked_bytes=0):
    """An OLMoE checkpoint, with a tensor for each expert or stacked ones; random bytes, or a sparse file."""
    folder.mkdir(parents=True)
    config = {"model_type": "olmoe", "num_hidden_layers": layers, "num_experts": EXPERTS}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    header, at = {"__metadata__": {"format": "pt"}}, 0

    def add(name, shape):
        nonlocal at
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "U8", "shape": shape, "data_offsets": [at, at + size]}
        at += size

    for layer in range(layers):
        module = f"model.layers.{layer}.mlp."
        add(module + "gate.weight", [EXPERTS, 4])
        if stacked_bytes:
            add(module + "experts.down_proj", [EXPERTS, stacked_bytes // EXPERTS])
        else:
            for expert in range(EXPERTS):
                add(module + f"experts.{expert}.down_proj.weight", [1, expert_bytes])
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if at < 1 << 20:
            file.write(random.Random(layers).randbytes(at))
        else:
            file.truncate(8 + len(text) + at)


def write_placement(path, layers, seed=1):
    rows = [random.Random(seed + layer).sample(range(EXPERTS), EXPERTS) for layer in range(layers)]
    placement = {"format": "evenkeel.placement.v1", "num_layers": layers, "num_experts": EXPERTS, "num_ranks": 4}
    path.write_text(json.dumps(placement | {"physical_to_logical": rows}), encoding="utf-8")


class Permute(CommandTest):
    def prepare(self, layers=3, **sizes):
        write_checkpoint(self.folder / "in", layers, **sizes)
        write_placement(self.folder / "placement.json", layers)

    WORDS = ["permute", "in", "--placement", "placement.json", "-o", "out"]

    def test_the_result_as_an_object_and_as_two_lines(self):
        self.prepare()
        done = self.json(*self.WORDS)
        self.assertEqual(list(done), KEYS)
        self.assertEqual((done["family"], done["layers"], done["kept_layers"]), ("olmoe", [0, 1, 2], []))
        self.assertEqual((done["num_experts"], done["num_ranks"], done["files"]), (EXPERTS, 4, 2))
        self.assertEqual(done["tensors"]["permuted"], 3)
        self.assertEqual(sum(done["tensors"].values()), 3 * (EXPERTS + 1))
        self.assertEqual(done["bytes"], sum(path.stat().st_size for path in (self.folder / "in").iterdir()))
        plain = self.call(*self.WORDS[:-1], "again")
        self.assertEqual((plain.returncode, plain.stderr), (0, ""))
        self.assertRegex(plain.stdout, r"\Aagain: olmoe, 8 experts on 4 ranks, 3 MoE layers; .*\ntensors: \d+ renamed")
        for path in (self.folder / "out").iterdir():
            self.assertEqual(path.read_bytes(), (self.folder / "again" / path.name).read_bytes())

    def test_files_and_folders_are_open_to_whom_their_sources_are(self):
        self.prepare()
        source = self.folder / "in"
        (source / "sub").mkdir(mode=0o750)
        (source / "sub" / "run.sh").write_text("#!/bin/sh\n")
        modes = {"config.json": 0o600, "model.safetensors": 0o400, "sub/run.sh": 0o755, "sub": 0o750, ".": 0o700}
        for name, mode in modes.items():
            (source / name).chmod(mode)
        self.assertEqual(self.call(*self.WORDS).returncode, 0)
        modes |= {"evenkeel_placement.json": 0o600}
        for name, mode in modes.items():
            self.assertEqual(oct((self.folder / "out" / name).stat().st_mode & 0o7777), oct(mode), name)
        source.chmod(0o755)
        (self.folder / "private").mkdir(mode=0o700)
        self.assertEqual(self.call(*self.WORDS[:-1], "private").returncode, 0)
        self.assertEqual((self.folder / "private").stat().st_mode & 0o7777, 0o700)

    def test_a_placement_made_for_a_model_with_groups_is_one_that_it_takes(self):
        write_checkpoint(self.folder / "in", 2)
        groups = {"model_type": "deepseek_v3", "num_hidden_layers": 2, "n_routed_experts": EXPERTS, "n_group": 4,
                  "topk_group": 2, "first_k_dense_replace": 0, "moe_layer_freq": 1}  # fmt: skip
        self.write("in/config.json", groups)
        self.write("loads.json", {"loads": [[50, 1, 2, 40, 3, 4, 30, 5], [1, 2, 50, 60, 4, 3, 2, 1]]})
        place = ["place", "loads.json", "--ranks", 4, "--model", "in", "-o", "p.json"]
        permute = ["permute", "in", "--placement", "p.json", "-o"]
        notes = self.json(*place)["after"]["notes"]
        self.assertIn("the model's router first chooses 2 of 4 groups of experts", notes[0])
        self.assertEqual(self.call(*permute, "whole").returncode, 0)
        self.json(*place, "--groups", 1)
        self.assert_refused([*permute, "no"], 4, "Infeasible", "into one group")
        self.assert_refused([*place, "--solver", "exact"], 2, "InvalidArgument", "--solver: exact may split groups",
                            "groups 1")  # fmt: skip

    def test_an_output_that_is_taken_and_a_placement_that_does_not_fit_are_usage(self):
        self.prepare()
        self.assertEqual(self.call(*self.WORDS).returncode, 0)
        self.assert_refused(self.WORDS, 2, "InvalidArgument", "output: ", "out is not empty")
        write_placement(self.folder / "placement.json", 2)
        words = [*self.WORDS[:-1], "other"]
        self.assert_refused(words, 2, "InvalidArgument", "--placement: has 2 layers", "3 MoE layers (0-2)")
        self.assert_refused(["permute", "nowhere", *words[2:]], 3, "ParseError", "nowhere: is not a folder")
        self.assertFalse((self.folder / "other").exists())

    def start_and_signal(self, sign):
        """Starts on a checkpoint of 1 GiB, and sends the signal once the temporary folder is being filled."""
        self.prepare(layers=4, stacked_bytes=256 << 20)
        process = self.start(*self.WORDS)
        while not list(self.folder.glob("out.*.part/model.safetensors*")):
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        process.send_signal(sign)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, -sign)
        self.assertFalse((self.folder / "out").exists())
        return errors

    def test_an_interrupt_leaves_nothing(self):
        # process_test.py checks the same for other signals.
        self.assertEqual(self.start_and_signal(signal.SIGINT), "evenkeel: interrupted; out was not made\n")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["in", "placement.json"])

    def on_a_terminal(self, kind, **changes):
        """Returns the exit status and all text that a terminal of this kind received."""
        terminal, errors = pty.openpty()
        done = self.call(*self.WORDS, stderr=errors, env=UTF8 | {"TERM": kind}, **changes)
        os.close(errors)
        text = b""
        with contextlib.suppress(OSError):  # raised at the end of the terminal
            while piece := os.read(terminal, 1 << 16):
                text += piece
        os.close(terminal)
        return done.returncode, text

    def test_a_terminal_that_knows_no_escape_sequences_gets_none(self):
        self.prepare(expert_bytes=1 << 16)
        for kind in ["dumb", ""]:
            with self.subTest(terminal=kind):
                self.assertEqual(self.on_a_terminal(kind), (0, b""))
                shutil.rmtree(self.folder / "out")
        status, text = self.on_a_terminal("xterm")
        self.assertEqual(status, 0)
        self.assertIn(b"permuting", text)

    def test_a_note_that_cannot_be_printed_leaves_a_success_one(self):
        self.prepare()
        (self.folder / "in" / "old.bin").write_text("weights of another format")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = self.call(*self.WORDS, stderr=full)
        self.assertEqual(done.returncode, 0)
        self.assertTrue((self.folder / "out" / "old.bin").exists())

    def test_names_as_long_as_a_file_system_has_them_are_written(self):
        self.prepare()
        for length in [242, 255]:
            (self.folder / "in" / ("n" * length)).write_text("x")
        done = self.json(*self.WORDS[:-1], "o" * 255)
        self.assertTrue((self.folder / ("o" * 255) / ("n" * 255)).exists())
        self.assertEqual(done["leftovers"], [])

    def test_an_error_on_a_terminal_does_not_stand_behind_the_progress(self):
        """The disk rejects files above 64 KiB, which shows only after some data are written."""
        self.prepare(expert_bytes=1 << 16)

        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

        status, text = self.on_a_terminal("xterm", preexec_fn=small_files)
        self.assertEqual(status, 4)
        self.assertIn(b"permuting", text)
        self.assertRegex(text, rb"\r\x1b\[Kevenkeel: [^\r\n]+File too large\r\n\Z")

    def test_a_kill_leaves_one_folder_beside_and_the_next_run_names_it(self):
        self.start_and_signal(signal.SIGKILL)
        (left,) = self.folder.glob("out.*.part")
        shutil.rmtree(self.folder / "in")
        self.prepare()
        done = self.json(*self.WORDS)
        self.assertEqual(done["leftovers"], [str(left.resolve())])
        self.assertTrue((self.folder / "out" / "model.safetensors").exists())
