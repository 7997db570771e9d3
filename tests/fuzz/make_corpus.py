#!/usr/bin/env python3
"""Makes the seeds in corpus/: small files of every kind the readers know, whole and damaged.

    python3 tests/fuzz/make_corpus.py

What a fuzzer found is added by hand as corpus/<target>/found-*; this script leaves those alone.
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
put("npz", "wide-row", npz([("topk_ids.npy", npy(np.zeros((1, 1000, 1000), np.uint8)))]))

put("json", "loads", '{"loads": [3, 0, 12, 5]}')
put("json", "counts", '{"counts": [[1, 2], [3, 4], [0, 0]]}')
put(
    "json",
    "profile",
    '{"format": "evenkeel.profile.v1", "num_layers": 2, "num_experts": 2, '
    '"loads": [[1, 2], [3, 0]], "transitions": [[[1, 0], [2, 0]]]}',
)
PLACEMENT = {
    "format": "evenkeel.placement.v1",
    "num_layers": 2,
    "num_experts": 4,
    "num_ranks": 2,
    "physical_to_logical": [[0, 1, 2, 3], [3, 1, 0, 2]],
    "objective": 12.5,
    "bound": 12,
    "provenance": {"solver": "fast", "seed": 1},
}
put("json", "placement", json.dumps(PLACEMENT))
put("json", "placement-unequal", json.dumps(PLACEMENT | {"rank_offsets": [[0, 1, 4], [0, 3, 4]]}))
put(
    "json",
    "placement-owners",
    json.dumps(PLACEMENT | {"physical_to_logical": [[0, 1, 2, 2, 3, 0]] * 2, "owners": [[1, 0, 1, 1]] * 2}),
)
put("json", "placement-huge-ranks", json.dumps(PLACEMENT | {"num_ranks": 60000}))
put("json", "placement-huge-layers", json.dumps(PLACEMENT | {"num_layers": 2**62}))
put("json", "placement-twice", json.dumps(PLACEMENT | {"physical_to_logical": [[0, 0, 2, 3], [3, 1, 0, 2]]}))
put("json", "placement-homeless", json.dumps(PLACEMENT | {"physical_to_logical": [[0, 1, 2, 1], [3, 1, 0, 2]]}))
put("json", "overflow", '{"loads": [9223372036854775807, 1]}')
put("json", "too-big", '{"loads": [9223372036854775808, 1e400, 1e300]}')
put("json", "negative", '{"counts": [[-1]]}')
put("json", "ragged", '{"counts": [[1, 2], [3]]}')
put("json", "deep", '{"loads": ' + "[" * 2000 + "]" * 2000 + "}")
put("json", "nul", b'{"loads": [1, 2]}\x00{"loads": [9, 9]}')
put("json", "empties", '{"loads": [1, 2], "x": [' + "[]," * 1000 + "0]}")
put("json", "ones", '{"loads": [' + "1," * 2000 + "1]}")
put("json", "escapes", '{"l\\u006fads": [1, 2], "\\ud83d\\ude00": "\\n\\"\\\\"}')
put("json", "twice", '{"loads": [1], "loads": [2]}')
put("json", "not-utf8", b'{"loads": "\xff\xfe"}')
put("json", "short", '{"loads": [1, 2')

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

CONFIG = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 2}
CONFIG |= {"n_routed_experts": 8, "n_group": 4, "topk_group": 2}
MAP = {"format": "evenkeel.expert_map.v1", "num_experts": 3, "num_ranks": 3}
put("checkpoint", "config", json.dumps(CONFIG))
put("checkpoint", "config-mixtral", '{"model_type": "mixtral", "num_hidden_layers": 1, "num_local_experts": 8}')
put("checkpoint", "config-unknown", json.dumps(CONFIG | {"model_type": "x", "architectures": [1]}))
put("checkpoint", "config-groups", json.dumps(CONFIG | {"n_group": 3}))
put("checkpoint", "config-experts", json.dumps(CONFIG | {"n_routed_experts": 2**62}))
put("checkpoint", "config-numbered", json.dumps(CONFIG | {"ignore": {"experts.": ["a.experts.7.b"]}}))
SIZES = {"hidden_size": 8, "vocab_size": 9, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 6}
SIZES |= {"num_hidden_layers": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 5, "tie_word_embeddings": True}
LATENT = {"q_lora_rank": None, "kv_lora_rank": 4, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2, "v_head_dim": 5}
LATENT |= {"n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1}
QWEN = SIZES | {"model_type": "qwen3_moe", "num_experts": 4, "mlp_only_layers": [1], "decoder_sparse_step": 1}
put("checkpoint", "sizes-qwen", json.dumps(QWEN))
put("checkpoint", "sizes-layers", json.dumps(QWEN | {"mlp_only_layers": [3], "num_hidden_layers": 300}))
put("checkpoint", "sizes-latent", json.dumps(SIZES | LATENT | {"model_type": "deepseek_v3", "dtype": "bfloat16"}))
put("checkpoint", "sizes-inside", json.dumps({"text_config": SIZES | LATENT | {"model_type": "kimi_k2"}}))
put("checkpoint", "sizes-gpt-oss", json.dumps(SIZES | {"model_type": "gpt_oss", "num_local_experts": 4, "head_dim": 2}))
DELTA = {"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 3, "linear_value_head_dim": 4}
DELTA |= {"linear_conv_kernel_dim": 4, "shared_expert_intermediate_size": 5, "full_attention_interval": 2}
put("checkpoint", "sizes-delta", json.dumps(QWEN | DELTA | {"model_type": "qwen3_next"}))
BLOCKS = {
    "hybrid_override_pattern": "ME*",
    "num_hidden_layers": 3,
    "n_groups": 1,
    "ssm_state_size": 2,
    "conv_kernel": 4,
}
BLOCKS |= {"mamba_num_heads": 2, "mamba_head_dim": 3, "moe_shared_expert_intermediate_size": 5, "n_routed_experts": 4}
put("checkpoint", "sizes-blocks", json.dumps(SIZES | BLOCKS | {"model_type": "nemotron_h"}))
WIDE = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "num_experts": 4}
WIDE |= {"top_k_experts": 2, "head_dim": 2, "per_layer_config": {"01": {"head_dim": 4, "num_key_value_heads": 1}}}
put("checkpoint", "sizes-wide", json.dumps(SIZES | WIDE | {"model_type": "gemma4_text"}))
PRESSED = {"q_lora_rank": 3, "o_lora_rank": 2, "o_groups": 2, "index_n_heads": 2, "index_head_dim": 3, "hc_mult": 2}
PRESSED |= {"num_hidden_layers": 3, "compress_ratios": [0, 4, 128, 0], "head_dim": 2, "n_routed_experts": 4}
put("checkpoint", "sizes-compressed", json.dumps(SIZES | PRESSED | {"model_type": "deepseek_v4"}))
HUGE = {"hidden_size": 1 << 24, "moe_intermediate_size": 1 << 24, "num_experts": 65536, "num_hidden_layers": 65536}
put("checkpoint", "sizes-huge", json.dumps(QWEN | HUGE))
put("checkpoint", "index", '{"metadata": {"total_size": 1}, "weight_map": {"a": "b.safetensors", "c": "d"}}')
put("checkpoint", "index-outside", '{"weight_map": {"a": "../b.safetensors"}}')
put("checkpoint", "index-null", '{"weight_map": {"a": "b\\u0000c"}}')
put("checkpoint", "map", json.dumps(MAP | {"model_layers": [3, 1], "old_to_new": [[2, 0, 1], [0, 1, 2]]}))
put("checkpoint", "map-twice", json.dumps(MAP | {"model_layers": [1, 1], "old_to_new": [[2, 0, 1], [0, 1, 2]]}))
put("checkpoint", "map-outside", json.dumps(MAP | {"model_layers": [1], "old_to_new": [[2, 0, 3]]}))
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
    """The instructions that torch.save writes for a tensor, without those that remember values."""
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
TRACE_LINE = {
    "step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": 3, "rank": 0, "num_tokens": 2, "topk": 2,
    "top_indices": [[0, 5], [2, 1]],
}  # fmt: skip
put("recording", "megatron", "\n".join(json.dumps(TRACE_LINE | {"layer": layer}) for layer in (3, 4, 3, 4)))
put("recording", "megatron-tokens", json.dumps(TRACE_LINE | {"num_tokens": 2**40}))
put("recording", "megatron-layer", json.dumps(TRACE_LINE | {"layer": 65535}) + "\n" + json.dumps(TRACE_LINE))
put("recording", "trtllm", safetensors({"7_3": np.arange(4), "7_4": np.arange(4)}))
put("recording", "trtllm-missing", safetensors({"7_3": np.arange(4), "8_4": np.arange(4)}))
put("recording", "csv", "layer,e0,e1\n3,1,2\n4,0,6.0\n")
STATS_LINE = {
    "record_type": "eplb_load_stats",
    "version": 1,
    "expert_load": [[1, 2, 3, 0.5]],
    "p2l_map": [[0, 1, 2, 1]],
}
put("recording", "vllm-stats", "\n".join(json.dumps(STATS_LINE | {"step": step}) for step in (6, 7, 0)))
put(
    "recording",
    "vllm-stats-slots",
    json.dumps(STATS_LINE) + "\n" + json.dumps(STATS_LINE | {"p2l_map": [[2, 1, 0, -1]]}),
)
put("recording", "csv-ragged", "1,2\n3\n")
put("recording", "csv-steps", "step,rank,layer,expert,count\n0,0,3,0,1\n0,1,3,0,2\n0,0,3,1,4\n1,0,4,1,0.5\n")
put("recording", "csv-sparse-steps", "step,expert,count\n" + "".join(f"{i},{i * 40000 % 65536},1\n" for i in range(40)))
put("recording", "csv-index-steps", ",step,e0,e1\n0,0,1,2\n1,1,3,4\n")
LISTS = [[1, 2, 3], [0, 4, 5]]
put(
    "recording",
    "lines-steps",
    "\n".join(json.dumps({"step": n // 2, "rank": n % 2, "expert_load": LISTS}) for n in range(4)),
)
put("recording", "lines-windows", "\n".join(json.dumps({"rank": n, "expert_load": [LISTS, LISTS]}) for n in range(2)))
put("recording", "lines-same-step", "\n".join(json.dumps({"step": 1, "expert_load": LISTS}) for n in range(2)))
put(
    "recording",
    "lines-other-step",
    json.dumps({"step": 1, "expert_load": LISTS}) + "\n" + json.dumps({"expert_load": LISTS}),
)
put("recording", "steps", "[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]")

PHYSICAL = [[0, 1, 2, 3], [3, 1, 0, 2]]
MAPPING = {"record_type": "eplb_initial_mapping", "version": 1, "num_redundant_experts": 0, "num_slots": 4}
LAYER = {"layer_id": 0, "device_count": 2}
DEVICES = [{"device_id": r, "device_expert": PHYSICAL[0][2 * r : 2 * r + 2]} for r in range(2)]
put("foreign", "sglang", json.dumps({"physical_to_logical_map": PHYSICAL}))
put("foreign", "sglang-counts", json.dumps({"logical_count": PHYSICAL}))
put("foreign", "sglang-huge", json.dumps({"physical_to_logical_map": [[65535, 0], [0, 1]]}))
put("foreign", "vllm", json.dumps(MAPPING | {"initial_global_assignments": {"0": PHYSICAL[0], "1": PHYSICAL[1]}}))
put(
    "foreign",
    "vllm-missing",
    json.dumps(MAPPING | {"initial_global_assignments": {"0": PHYSICAL[0], "2": PHYSICAL[1]}}),
)
put("foreign", "vllm-lines", '{"record_type": "other"}\n' * 3)
put("foreign", "ascend", json.dumps({"moe_layer_count": 1, "layer_list": [LAYER | {"device_list": DEVICES}]}))
put("foreign", "ascend-empty", json.dumps({"moe_layer_count": 1, "layer_list": [LAYER | {"device_list": []}]}))
put("foreign", "trtllm", "initial_global_assignments:\n  3: [0, 1, 2, 3]\nlayer_updates_per_iter: 0\nnum_slots: 4\n")
put("foreign", "trtllm-lines", "num_slots: 4\ninitial_global_assignments:\n  3: [0, 1,\n  2, 3]\n  4:\n  - 3\n  - 2\n")
put("foreign", "trtllm-open", "num_slots: 4\ninitial_global_assignments:\n  3: [0, 1")
put("foreign", "trtllm-key", "num_slots: 4\nnum_slots: 4\n")
put(
    "foreign",
    "trtllm-flow",
    "{initial_global_assignments: {3: [0, 1,\n  2, 3]}, layer_updates_per_iter: 0, num_slots: 4}\n",
)
put("foreign", "trtllm-json", '{"num_slots": 4, "initial_global_assignments": {"3": [0, 1, 2, 3]}}')
put(
    "foreign",
    "trtllm-options",
    "backend: pytorch\nmoe_config:\n  load_balancer: {num_slots: 4, initial_global_assignments: {3: [0, 1, 2, 3]}}\n",
)
put("foreign", "trtllm-aliases", "num_slots: 2\ninitial_global_assignments:\n  3: &a [0, 1]\n  4: *a\n  5: *a\n")
put("foreign", "trtllm-comma", "num_slots: 4\ninitial_global_assignments:\n  3: [0, 1 2, 3]\n")
put("foreign", "trtllm-itself", "num_slots: 2\ninitial_global_assignments: &a\n  3: [0, *a]\n")
put("foreign", "trtllm-deep", "num_slots: " + "[" * 2000)

TOPOLOGY = {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2}
LEVELS = {"within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50.5, "latency_us": 5}}
MATRIX = [[0, 2, 3, 4], [1, 0, 3, 4], [1, 2, 0, 4], [1, 2, 3, 0]]
NODES = {"format": "evenkeel.topology.v1", "node_of_rank": [0, 0, 1, 1]}
for name, content in {
    "levels": TOPOLOGY | LEVELS,
    "alike": TOPOLOGY | {"name": "two nodes", "source": "nobody", "devices_per_rank": 2},
    "one-node": {
        "format": "evenkeel.topology.v1",
        "num_nodes": 1,
        "ranks_per_node": 3,
        "within": {"gigabytes_per_s": 1},
    },
    "matrix": NODES | {"gigabytes_per_s": MATRIX, "latency_us": MATRIX},
    "lists": NODES | {"speeds": [1, 0.5, 2, 1e3], "rooms": [1, 2, 3, 1 << 30]},
    "both": NODES | TOPOLOGY,
    "gap": NODES | {"node_of_rank": [0, 2]},
    "negative-node": NODES | {"node_of_rank": [-(2**63), 0]},
    "no-node": NODES | {"node_of_rank": []},
    "huge": TOPOLOGY | {"num_nodes": 65536, "ranks_per_node": 65536},
    "ragged": NODES | {"gigabytes_per_s": MATRIX[:3] + [[1]]},
    "no-bandwidth": TOPOLOGY | {"within": {"gigabytes_per_s": 0}, "across": {"gigabytes_per_s": 1e308}},
    "no-across": TOPOLOGY | {"within": {"gigabytes_per_s": 1}},
    "unknown-key": TOPOLOGY | {"bandwidth": 3},
    "no-room": NODES | {"rooms": [0, 1, 1, 1]},
}.items():
    put("topology", name, json.dumps(content))
put("topology", "cut", json.dumps(TOPOLOGY | LEVELS)[:-9])
put(
    "topology", "infinite", '{"format": "evenkeel.topology.v1", "num_nodes": 1, "ranks_per_node": 1, "speeds": [1e999]}'
)

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

COST = {
    "format": "evenkeel.cost.v1",
    "flops_per_second": 1.5e11,
    "weight_bytes_per_second": 2e10,
    "overlap": 0.5,
    "link_bytes_per_second": 9e9,
    "chunk_seconds": 1e-4,
}
MACHINE = COST | {
    "format": "evenkeel.cost.v2",
    "inner_half": 200.5,
    "products_seconds": 0,
    "link_seconds": 1e-6,
    "nic_bytes_per_second": 5e9,
    "nic_seconds": 1e-5,
    "ranks_per_nic": 2,
    "ramp_bytes": 1e6,
}
MEASURED = {"measured_on": {"cpu": "any", "cores": 2, "ranks": 2, "layer": "128 experts"}}
for name, content in {
    "whole": COST | MEASURED,
    "short": COST,
    "missing": {key: value for key, value in COST.items() if key != "chunk_seconds"},
    "without-overlap": {key: value for key, value in COST.items() if key != "overlap"},
    "much-overlap": COST | {"overlap": 1.5},
    "unknown-key": COST | {"latency": 1},
    "text": COST | {"flops_per_second": "fast"},
    "zero": COST | {"link_bytes_per_second": 0},
    "negative": COST | {"chunk_seconds": -1},
    "large": COST | {"chunk_seconds": 1e7},
    "other-format": COST | {"format": "evenkeel.cost.v3"},
    "machine": MACHINE | MEASURED,
    "machine-half-a-nic": MACHINE | {"ranks_per_nic": 0.5},
    "machine-missing": COST | {"format": "evenkeel.cost.v2"},
    "list": [COST],
}.items():
    put("cost", name, json.dumps(content))
put("cost", "twice", json.dumps(COST)[:-1] + ', "chunk_seconds": 2}')
put("cost", "infinite", json.dumps(COST).replace("150000000000.0", "1e999"))
put("cost", "cut", json.dumps(COST)[:-9])
