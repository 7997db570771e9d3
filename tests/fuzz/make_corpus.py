#!/usr/bin/env python3
"""Makes the binary seeds in corpus/: small files of every kind that the readers know, intact and damaged.

    python3 tests/fuzz/make_corpus.py

Leaves alone the text seeds, which are written by hand, and inputs that a fuzzer found (corpus/<target>/found-*).
"""

import io
import json
import pathlib
import struct
import zipfile

import numpy as np

CORPUS = pathlib.Path(__file__).parent / "corpus"
IDS = np.arange(24, dtype=np.int16).reshape(4, 3, 2) % 5
WEIGHTS = (np.arange(24).reshape(4, 3, 2) / 32).astype(np.float32)
OFFSETS = np.array([0, 1, 4], dtype=np.int64)
LOADS = np.arange(6, dtype=np.int64).reshape(2, 3)
NAMES = {
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "bool": "BOOL",
}


def put(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def safetensors(arrays, metadata=None, change=lambda header: header, tail=b""):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, array in arrays.items():
        header[name] = {
            "dtype": NAMES[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    text = json.dumps(change(header)).encode()
    return struct.pack("<Q", len(text)) + text + data + tail


def npy(array, version=(1, 0)):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def npy_text(dictionary, data=b"", length=None):
    text = dictionary.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) if length is None else length) + text + data


def npz(members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return out.getvalue()


def changed(name, key, value):
    def change(header):
        header[name][key] = value
        return header

    return change


TRACE = {"topk_ids": IDS, "topk_weights": WEIGHTS, "sequence_offsets": OFFSETS}
META = {"format": "evenkeel.trace.v1", "num_experts": "8", "note": "free"}
WHOLE = safetensors(TRACE, META)
PROFILE = safetensors({"loads": LOADS, "transitions": np.ones((1, 3, 3), np.int64)}, {"format": "evenkeel.profile.v1"})

put("safetensors", "trace", WHOLE)
put("safetensors", "profile", PROFILE)
put("safetensors", "empty-array", safetensors({"a": np.zeros((0, 7), np.int8)}))
put("safetensors", "types", safetensors({n: np.ones(2, n) for n in NAMES}))
put("safetensors", "no-arrays", safetensors({}))
put("safetensors", "short", WHOLE[:-5])
put("safetensors", "long", WHOLE + b"?????")
put("safetensors", "only-length", WHOLE[:8])
put("safetensors", "length-too-big", struct.pack("<Q", 2**63) + WHOLE[8:])
put("safetensors", "length-past-end", struct.pack("<Q", 10**6) + WHOLE[8:])
put("safetensors", "overlap", safetensors(TRACE, META, changed("topk_ids", "data_offsets", [8, 56])))
put("safetensors", "offset-2-to-63", safetensors(TRACE, META, changed("topk_ids", "data_offsets", [0, 2**63])))
put("safetensors", "offset-negative", safetensors(TRACE, META, changed("topk_ids", "data_offsets", [-48, 0])))
put("safetensors", "shape-overflow", safetensors(TRACE, META, changed("topk_ids", "shape", [2**32, 2**32, 2**32])))
put("safetensors", "shape-negative", safetensors(TRACE, META, changed("topk_ids", "shape", [-4, -3, 2])))
put("safetensors", "dtype-unknown", safetensors(TRACE, META, changed("topk_ids", "dtype", "Q7")))
put("safetensors", "not-an-object", struct.pack("<Q", 4) + b"[{}]")
put("safetensors", "deep", struct.pack("<Q", 4000) + b'{"a":' + b"[" * 3995)

put("npy", "ids", npy(IDS))
put("npy", "version2", npy(IDS, (2, 0)))
put("npy", "version3", npy(IDS, (3, 0)))
put("npy", "scalar", npy(np.array(3.5)))
put("npy", "bool", npy(np.array([True, False])))
put("npy", "fortran", npy(np.asfortranarray(IDS)))
put("npy", "big-endian", npy(IDS.astype(">i4")))
put("npy", "records", npy(np.zeros(2, dtype=[("a", "<i4")])))
put("npy", "short", npy(IDS)[:-3])
put("npy", "header-past-end", npy_text("{", length=65535))
put(
    "npy",
    "shape-overflow",
    npy_text("{'descr': '<i8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 2), }"),
)
put("npy", "shape-huge", npy_text("{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }", b"12345678"))
put("npy", "shape-negative", npy_text("{'descr': '<i8', 'fortran_order': False, 'shape': (-1,), }"))
put("npy", "shape-odd", npy_text("{'descr': '|u1', 'fortran_order': False, 'shape': (2,2,), }", b"1234"))
put(
    "npy", "many-dimensions", npy_text("{'descr': '|u1', 'fortran_order': False, 'shape': (" + "1," * 200 + ") }", b"1")
)
put("npy", "quotes", npy_text("{'descr': '<i8"))
put("npy", "object", npy_text("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cos\nsystem\n."))

MEMBERS = [
    ("topk_ids.npy", npy(IDS)),
    ("weights.npy", npy(WEIGHTS)),
    ("sequence_offsets.npy", npy(OFFSETS)),
    ("num_experts.npy", npy(np.int64(8))),
]
for name, method in [("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)]:
    put("npz", name, npz(MEMBERS, method))
put("npz", "bzip2", npz(MEMBERS, zipfile.ZIP_BZIP2))
put("npz", "empty", npz([]))
put("npz", "other-member", npz(MEMBERS[:1] + [("readme.txt", b"not an array")]))
put("npz", "short", npz(MEMBERS)[:-30])
put("npz", "damaged", npz(MEMBERS, zipfile.ZIP_STORED).replace(b"NUMPY", b"NUMPX"))
flipped = bytearray(npz(MEMBERS[:1]))
flipped[60] ^= 0x55
put("npz", "bits-flipped", bytes(flipped))
put(
    "npz",
    "claims-more",
    npz([("a.npy", npy_text("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000,), }"))]),
)
lying = npz([("a.npy", npy_text("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000,), }"))])
honest = zipfile.ZipFile(io.BytesIO(lying)).getinfo("a.npy").file_size
put("npz", "size-lies", lying.replace(struct.pack("<I", honest), struct.pack("<I", honest + 1_000_000)))
put("npz", "bomb", npz([("sequence_offsets.npy", npy(np.zeros(200_000, np.int64))), ("topk_ids.npy", npy(IDS))]))
put("npz", "text", npz(MEMBERS + [("note.npy", npy(np.asarray("by hand")))]))
put("npz", "text-not-ascii", npz(MEMBERS + [("note.npy", npy(np.asarray("von früher")))]))
put("npz", "texts", npz(MEMBERS + [("notes.npy", npy(np.asarray(["a", "b"])))]))
put("npz", "wide-row", npz([("topk_ids.npy", npy(np.zeros((1, 1000, 1000), np.uint8)))]))

put("trace", "safetensors", WHOLE)
put("trace", "npy", npy(IDS))
put("trace", "npy-one-layer", npy(IDS[:, 0, :]))
put("trace", "npz", npz(MEMBERS))
put("trace", "npz-stored", npz(MEMBERS, zipfile.ZIP_STORED))
put("trace", "absent", npy(np.where(IDS == 2, -1, IDS).astype(np.int8)))
put("trace", "id-too-big", safetensors({"topk_ids": IDS * 3}, META))
put("trace", "id-negative", npy(-IDS))
put("trace", "id-2-to-63", npy(np.full((1, 1, 1), 2**63, np.uint64)))
put("trace", "no-tokens", npy(np.zeros((0, 3, 2), np.int8)))
put("trace", "no-layers", npy(np.zeros((3, 0, 2), np.int8)))
put("trace", "row-too-wide", npy_text("{'descr': '|u1', 'fortran_order': False, 'shape': (0, 1000000000000, 8), }"))
put("trace", "experts-absurd", safetensors(TRACE, META | {"num_experts": "99999999999999999999"}))
put("trace", "experts-many", safetensors(TRACE, META | {"num_experts": "65536"}))
put("trace", "offsets-descend", safetensors(TRACE | {"sequence_offsets": OFFSETS[::-1].copy()}, META))
put("trace", "offsets-past-end", safetensors(TRACE | {"sequence_offsets": OFFSETS * 5}, META))
put("trace", "weights-other-shape", safetensors(TRACE | {"topk_weights": WEIGHTS[:2]}, META))
put("trace", "weights-nan", safetensors(TRACE | {"topk_weights": WEIGHTS * np.nan}, META))
put("trace", "profile", PROFILE)
put("trace", "wide-row", npz([("topk_ids.npy", npy(np.zeros((1, 1000, 1000), np.uint8)))]))

ROWS = {"model.layers.0.mlp.gate.weight": np.ones((8, 1), np.uint8)}
EACH = {f"model.layers.0.mlp.experts.{e}.up_proj.weight": np.full(2, e, np.uint8) for e in range(8)}
STACKED = {"layers.1.mlp.experts.gate_up_proj": np.ones((8, 2), np.uint8)}
put("checkpoint", "experts", safetensors(ROWS | EACH))
TABLE = {"layers.0.ffn.gate.weight": np.ones((8, 1), np.uint8), "layers.0.ffn.gate.tid2eid": np.arange(8).reshape(4, 2)}
TABLE |= {f"layers.0.ffn.experts.{e}.w1.weight": np.full(2, e, np.uint8) for e in range(8)}
put("checkpoint", "experts-table", safetensors(TABLE))
put("checkpoint", "experts-missing", safetensors(ROWS | dict(list(EACH.items())[:7])))
put("checkpoint", "experts-unknown", safetensors(ROWS | EACH | {"experts": np.ones(1, np.uint8)}))
put("checkpoint", "stacked", safetensors(STACKED | {"layers.1.mlp.router.weight": np.ones((8, 1), np.uint8)}))
put("checkpoint", "no-shape", safetensors({"layers.1.mlp.gate.weight": np.ones((), np.uint8)}))
put("checkpoint", "any-type", safetensors(ROWS | EACH, {}, changed("model.layers.0.mlp.gate.weight", "dtype", "F4")))
put("checkpoint", "layer-huge", safetensors({"model.layers.99999999999.mlp.gate.weight": np.ones((8, 1), np.uint8)}))

DATA = CORPUS.parent.parent / "io" / "data"
STAT = (DATA / "sglang_stat.pt").read_bytes()


def torch_file(pickle, storages=(), method=zipfile.ZIP_STORED, order=b"little", version=b"3\n"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        members = [("a/data.pkl", pickle), ("a/byteorder", order), ("a/version", version)]
        for name, content in members + [(f"a/data/{i}", s) for i, s in enumerate(storages)]:
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return out.getvalue()


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    return b"J" + struct.pack("<i", value)


def tensor(shape, strides, numel, offset=0, storage="0", kind="torch\nLongStorage"):
    """The pickle instructions that torch.save writes for a tensor, without those that memoize values."""
    place = b"(" + text("storage") + b"c" + kind.encode() + b"\n" + text(storage) + text("cpu") + number(numel) + b"tQ"
    lengths = b"".join(b"(" + b"".join(number(n) for n in part) + b"t" for part in (shape, strides))
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + place
        + number(offset)
        + lengths
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )


def pickled(instructions):
    return b"\x80\x02" + instructions + b"."


def counts_pickle(*args, beside=b"", **more):
    return pickled(b"}" + text("logical_count") + tensor(*args, **more) + b"s" + beside)


EIGHT = np.arange(8, dtype=np.int64).tobytes()
put("pickle", "counts", counts_pickle((2, 4), (4, 1), 8))
put("pickle", "torch", zipfile.ZipFile(io.BytesIO(STAT)).read("sglang_stat/data.pkl"))
put("pickle", "itself", pickled(b"]q\x00h\x00a"))
put("pickle", "deep", pickled(b"]" * 2000 + b"a" * 1999))
put("pickle", "marks", pickled(b"(" * 2000 + b"t" * 2000))
put("pickle", "system", pickled(b"cposix\nsystem\n" + text("true") + b"\x85R"))
put("pickle", "protocol4", b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N.")
put("pickle", "long", pickled(b"\x8a\xff" + b"\x7f" * 255))
put("pickle", "text-past-end", pickled(b"X\xff\xff\xff\x7f"))
put("pickle", "memo-far", pickled(b"Nr\xff\xff\xff\xff"))
put("pickle", "empty", pickled(b""))
put("pickle", "ordered-dict", pickled(b"ccollections\nOrderedDict\n)R" + text("a") + b"K\x01s"))
put("pickle", "name-without-end", pickled(b"c" + b"a" * 300))

put("recording", "stat", STAT)
for mode in ("per_pass", "per_token", "without_map"):
    put("recording", mode, (DATA / f"sglang_{mode}.pt").read_bytes())
put("recording", "counts", (DATA / "counts.pt").read_bytes())
put("recording", "halves", (DATA / "halves.pt").read_bytes())
put("recording", "short", STAT[:-20])
put("recording", "deflated", torch_file(counts_pickle((2, 4), (4, 1), 8), [EIGHT], zipfile.ZIP_DEFLATED))
put("recording", "bomb", torch_file(pickled(b"N" + b"0" * 10_000_000), method=zipfile.ZIP_DEFLATED))
put("recording", "big-endian", torch_file(counts_pickle((2, 4), (4, 1), 8), [EIGHT], order=b"big"))
put("recording", "expanded", torch_file(counts_pickle((50, 4), (0, 1), 8), [EIGHT]))
put("recording", "expanded-too-far", torch_file(counts_pickle((2**30, 4), (0, 1), 8), [EIGHT]))
put("recording", "past-end", torch_file(counts_pickle((3, 4), (4, 1), 12), [EIGHT]))
put("recording", "claims-more", torch_file(counts_pickle((2, 4), (4, 1), 2**30), [EIGHT]))
put("recording", "longer", torch_file(counts_pickle((2, 4), (4, 1), 8), [b"\x07" * 8 + EIGHT]))
put(
    "recording",
    "other-longer",
    torch_file(
        counts_pickle((2, 4), (4, 1), 8, beside=text("a") + tensor((1,), (1,), 1, storage="1") + b"s"), [EIGHT, EIGHT]
    ),
)
put("recording", "other-version", torch_file(counts_pickle((2, 4), (4, 1), 8), [EIGHT], version=b"11"))
put("recording", "stride-overflow", torch_file(counts_pickle((2, 4), (2**31 - 1, 2**31 - 1), 8), [EIGHT]))
put("recording", "negative", torch_file(counts_pickle((2, 4), (4, 1), 8), [(-np.arange(8)).tobytes()]))
put("recording", "no-storage", torch_file(counts_pickle((2, 4), (4, 1), 8, storage="7"), [EIGHT]))
put("recording", "wrong-type", torch_file(counts_pickle((2, 4), (4, 1), 8, kind="torch\nFloatStorage"), [EIGHT]))
put("recording", "empty-shape", torch_file(counts_pickle((0, 4), (4, 1), 8), [EIGHT]))
put("recording", "trtllm", safetensors({"7_3": np.arange(4), "7_4": np.arange(4)}))
put("recording", "trtllm-missing", safetensors({"7_3": np.arange(4), "8_4": np.arange(4)}))


def ultra_ep(layers, microbatches, **more):
    """An UltraEP chunk with two layers of three experts; `more` replaces or adds keys of its metadata."""
    said = {"schema": "ultra_ep_trace_v1", "trace_id": "epg2a_gr0_r0_1753", "chunk_id": 0, "records": len(layers)}
    said |= {"ep_size": 1, "num_layers": 2, "num_global_logical_experts": 3, "dropped_records": 0} | more
    loads = np.arange(3 * len(layers), dtype=np.int32).reshape(-1, 3)
    arrays = {
        "metadata": np.asarray(json.dumps(said, separators=(",", ":"))),
        "layers": np.asarray(layers, np.int32),
        "virtual_layers": np.asarray(layers, np.int32),
        "microbatches": np.asarray(microbatches, np.int64),
        "pre_logical_loads": loads,
        "post_physical_loads": loads,
    }
    return npz([(name + ".npy", npy(array)) for name, array in arrays.items()], zipfile.ZIP_STORED)


put("recording", "ultraep", ultra_ep([1, 2, 1, 2], [0, 0, 8, 8]))
put("recording", "ultraep-dropped", ultra_ep([1, 2, 2], [0, 0, 8]))
put("recording", "ultraep-twice", ultra_ep([1, 1], [0, 0]))
put("recording", "ultraep-layer", ultra_ep([-1], [0]))
put("recording", "ultraep-other", ultra_ep([1], [0], schema="ultra_ep_trace_v2"))
TRAINED = {
    "experts.gate_up.weight": np.ones((3, 4, 5), np.float32),
    "experts.down.weight": np.ones((3, 5, 2), np.float16),
    "router.weight": np.ones((3, 5), np.float32),
    "input": np.ones((6, 5), np.float32),
    "output": np.ones((6, 5), np.float32),
    "topk_ids": np.arange(12, dtype=np.int8).reshape(6, 2) % 3,
    "topk_weights": np.full((6, 2), 0.5, np.float32),
}
LAYER_FILE = safetensors(TRAINED)
put("trained_layer", "whole", LAYER_FILE)
put("trained_layer", "npz", npz([(name + ".npy", npy(array)) for name, array in TRAINED.items()]))
put("trained_layer", "short", LAYER_FILE[:-7])
for name in TRAINED:
    put("trained_layer", "no-" + name, safetensors({key: array for key, array in TRAINED.items() if key != name}))
for name, array in {
    "id": TRAINED["topk_ids"] + np.int8(1),
    "negative": TRAINED["topk_ids"] - np.int8(1),
    "tokens": np.zeros((7, 2), np.int8),
    "flat": np.zeros(12, np.int8),
    "none": np.zeros((0, 2), np.int8),
}.items():
    put("trained_layer", "ids-" + name, safetensors(TRAINED | {"topk_ids": array}))
put("trained_layer", "huge", safetensors(TRAINED, None, changed("input", "shape", [2**40, 5])))
