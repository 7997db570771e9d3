"""Damaged copies of small files: if `evenkeel convert` reads one, numpy, torch or safetensors must read the same.

python3 tests/peers/damaged_files_test.py build/release/bin/evenkeel [COUNT [SEED]]
"""

import io
import json
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import peer

peer.require("numpy", "torch", "safetensors")

import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402
import torch  # noqa: E402

COMMAND = Path(sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/evenkeel").resolve()
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 600
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
NAMES = ["loads", "counts", "logical_count", "expert_load", "weight"]
PIECES = [bytes([byte]) for byte in b" \n\t\0,){}('\":#\\L-_+01[]<>|=.N\r\xa0"] + [b"True", b"null", b"{}", b"q\0"]
# Errors of peers about things that evenkeel ignores, since no number depends on them: zip's redundant fields, its
# fields for disks and encryption, and the encoding of texts.
LEFT_OPEN = [
    "multidisk",
    "unsupported encryption",
    "invalid header or archive",
    "not in a subdirectory",
    "differ.",
    "Bad magic number for file header",
    "codec can't decode",
]


def saved(save, *values, **named):
    buffer = io.BytesIO()
    save(*((*values, buffer) if save is torch.save else (buffer, *values)), **named)
    return buffer.getvalue()


def of_torch(value):
    """torch.save's file without the members that torch adds for itself."""
    whole, out = zipfile.ZipFile(io.BytesIO(saved(torch.save, value))), io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for info in whole.infolist():
            if "/." not in info.filename:
                archive.writestr(zipfile.ZipInfo(info.filename), whole.read(info))
    return out.getvalue()


def whole_files():
    counts = np.arange(80).reshape(2, 40) * 7 % 90 + 1
    tensor = torch.from_numpy(counts)
    files = {f"{kind}.npy": saved(np.save, counts.astype(kind)) for kind in ("i8", "i4", "f4", "u1")}
    files["steps.npy"] = saved(np.save, np.stack([counts, counts + 1]))
    files["counts.npz"] = saved(np.savez, counts=counts)
    files["deflated.npz"] = saved(np.savez_compressed, counts=counts, other=counts[0])
    files["profile.npz"] = saved(np.savez, loads=counts, layers=np.array([3, 4]))
    files["counts.pt"] = of_torch({"counts": tensor})
    files["stat.pt"] = of_torch({"logical_count": torch.stack([tensor, tensor]).int(), "rank": 0})
    files["alone.pt"] = of_torch(tensor.float())
    files["view.pt"] = of_torch({"counts": tensor.t().contiguous().t(), "x": [1, "a", None], "y": tensor[0]})
    files["parameter.pt"] = of_torch({"weight": torch.nn.Parameter(tensor.double(), requires_grad=False)})
    arrays = {"counts": counts.astype("i4"), "layers": np.array([3, 4])}
    files["counts.safetensors"] = safetensors.numpy.save(arrays)
    files["f4.safetensors"] = safetensors.numpy.save({"expert_load": counts.astype("f4")}, {"a": "b"})
    return files


class Damage:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def some(self, most):
        return self.random.randbytes(self.random.randrange(1, most))

    def flipped(self, data):
        damaged = bytearray(data)
        for _ in range(self.random.choice([1, 1, 2, 4])):
            at = self.random.randrange(len(damaged))
            damaged[at] = self.random.choice([damaged[at] ^ 1 << self.random.randrange(8), 0, 255])
        return bytes(damaged)

    def edited(self, text):
        """The text with one random edit: bytes inserted, replaced, removed or doubled, or a number changed."""
        at, how = self.random.randrange(len(text) + 1), self.random.randrange(5)
        piece = self.random.choice(PIECES)
        if how == 0:
            return text[:at] + piece + text[at:]
        if how == 1:
            return text[:at] + piece + text[at + 1 :]
        if how == 2:
            return text[:at] + text[at + self.random.randrange(1, 4) :]
        if how == 3:
            return text[: at + 20] + text[at:]
        numbers = list(re.finditer(rb"\d+", text))
        if not numbers:
            return text
        begin, end = self.random.choice(numbers).span()
        other = self.random.choice([b"0", b"1", b"2", b"80", b"02", b"-1", b"2L", b"4294967296", b"2.0", b"1e1"])
        return text[:begin] + other + text[end:]

    def header(self, data, kind):
        """Edits the header's text; its length field stays correct."""
        code, begin = ("<H", 8) if kind == "npy" else ("<Q", 0)
        text = begin + struct.calcsize(code)
        end = text + struct.unpack(code, data[begin:text])[0]
        new = self.edited(data[text:end])
        return data[:begin] + struct.pack(code, len(new)) + new + data[end:]

    def member(self, data):
        """Edits one member; the archive itself stays valid."""
        source, out = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
        warnings.filterwarnings("ignore", "Duplicate name")
        members = source.infolist()
        victim, how = self.random.choice(members), self.random.randrange(6)
        with zipfile.ZipFile(out, "w") as archive:
            for info in members:
                content, names = source.read(info), [info.filename]
                if info is victim:
                    content = [content[:-3], content + self.some(20), self.edited(content)][min(how, 2)]
                    names = [names, names, names, names * 2, [], [names[0] + "x"]][how]
                for name in names:
                    archive.writestr(zipfile.ZipInfo(name), content, compress_type=info.compress_type)
        return out.getvalue()

    def of(self, data, kind):
        how = self.random.randrange(8)
        if how < 4:
            return self.header(data, kind) if kind in ("npy", "safetensors") else self.member(data)
        if how < 6:
            return self.flipped(data)
        return data[: self.random.randrange(len(data))] if how == 6 else data + self.some(16)


def read_by_peer(path):
    """The array that contains the counts."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return arrays[next(name for name in [*NAMES, *arrays.files] if name in arrays.files)]
    if path.suffix == ".pt":
        arrays = torch.load(path, weights_only=True, map_location="cpu")
    else:
        arrays = safetensors.numpy.load_file(path)
    if isinstance(arrays, torch.Tensor):
        return arrays.detach().numpy()
    only = [name for name, array in arrays.items() if hasattr(array, "shape")]
    array = arrays[next(name for name in [*NAMES, *only] if name in arrays)]
    return array.detach().numpy() if isinstance(array, torch.Tensor) else array


def shares(loads):
    loads = np.asarray(loads, float)
    loads = np.atleast_2d(loads.sum(0) if loads.ndim == 3 else loads)
    return loads[loads.sum(1) > 0] / loads.sum()


def verdict(path):
    """Returns None if evenkeel refuses the file or reads the same numbers as the peer; else what is wrong."""
    profile = path.with_name(path.name + ".json")
    words = [COMMAND, "convert", path, profile, "--as", "counts"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None if done.returncode in (2, 3, 4) else f"exit {done.returncode}: {done.stderr}"
    ours = shares(json.loads(profile.read_text())["loads"])
    try:
        with warnings.catch_warnings(action="ignore"):
            theirs = shares(read_by_peer(path))
    except Exception as error:  # the peer fails with any error type
        return None if any(why in str(error) for why in LEFT_OPEN) else f"is read, but {type(error).__name__}: {error}"
    alike = ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    return None if alike else f"is read as {ours.shape} {ours.ravel()[:4]}, by the peer {theirs.ravel()[:4]}"


class DamagedFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def written(self, name, data):
        (self.folder / name).write_bytes(data)
        return self.folder / name

    def test_whole_files_are_read(self):
        for name, data in whole_files().items():
            path = self.written(name, data)
            self.assertIsNone(verdict(path))
            self.assertTrue(path.with_name(name + ".json").exists(), name)

    def test_what_is_read_is_what_its_own_library_reads(self):
        damage, files = Damage(SEED), whole_files()
        paths = []
        for i in range(COUNT):
            name = damage.random.choice(list(files))
            kind = name.rpartition(".")[2]
            paths.append(self.written(f"{i}-{name}", damage.of(files[name], kind)))
        with ThreadPoolExecutor(4) as pool:
            for path, wrong in zip(paths, pool.map(verdict, paths), strict=True):
                with self.subTest(seed=SEED, file=path.name):
                    self.assertIsNone(wrong)
        read = [path for path in paths if path.with_name(path.name + ".json").exists()]
        self.assertGreater(len(read), COUNT / 20)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
