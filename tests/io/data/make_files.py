#!/usr/bin/env python3
"""Makes the files beside this script with numpy and the safetensors package (here with versions 2.4.6 and 0.8.0).

The tests recompute every number from the formulas below; nothing here is random.

    python3 tests/io/data/make_files.py
"""

import pathlib

import numpy as np
from numpy.lib import format as npy_format
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
TOKENS, LAYERS, K, EXPERTS = 11, 3, 2, 13


def ids(dtype):
    t, l, j = np.meshgrid(range(TOKENS), range(LAYERS), range(K), indexing="ij")
    return ((7 * t + 3 * l + 5 * j) % EXPERTS).astype(dtype)


def weights(dtype):
    t, l, j = np.meshgrid(range(TOKENS), range(LAYERS), range(K), indexing="ij")
    return ((1 + t + 2 * l + 4 * j) / 64).astype(dtype)  # exact in float16


def absent():
    marked = ids(np.int8)
    marked[2, 1, :] = -1
    marked[5, 0, 1] = -1
    return marked


OFFSETS = np.array([0, 4, 4, TOKENS], dtype=np.int64)

for name in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]:
    np.save(HERE / f"ids_{name}.npy", ids(name))
np.save(HERE / "absent.npy", absent())
np.save(HERE / "one_layer.npy", ids(np.int32)[:, 0, :])
for version in [(2, 0), (3, 0)]:
    with open(HERE / f"ids_version{version[0]}.npy", "wb") as out:
        npy_format.write_array(out, ids(np.int32), version=version)

np.savez(HERE / "stored.npz", topk_ids=ids(np.uint8), weights=weights(np.float16), sequence_offsets=OFFSETS)
np.savez_compressed(
    HERE / "deflated.npz",
    topk_ids=ids(np.int16),
    topk_weights=weights(np.float32),
    sequence_offsets=OFFSETS[:-1],
    num_experts=np.int64(64),
)
np.savez(HERE / "routed_experts.npz", routed_experts=ids(np.int32), other=np.arange(3))

save_file(
    {"topk_ids": ids(np.int16), "topk_weights": weights(np.float16), "sequence_offsets": OFFSETS},
    HERE / "trace.safetensors",
    metadata={"format": "evenkeel.trace.v1", "num_experts": "16", "model": "none, made by a formula"},
)
save_file(
    {"loads": np.arange(6, dtype=np.int64).reshape(2, 3), "transitions": np.arange(9, dtype=np.int64).reshape(1, 3, 3)},
    HERE / "profile.safetensors",
    metadata={"format": "evenkeel.profile.v1"},
)

# Files that readers must refuse.
np.save(HERE / "fortran.npy", np.asfortranarray(ids(np.int32)))
np.save(HERE / "big_endian.npy", ids(">i4"))
np.save(HERE / "objects.npy", np.array([{}, []], dtype=object))
np.save(HERE / "records.npy", np.zeros(2, dtype=[("a", "<i4"), ("b", "<f8")]))
np.save(HERE / "floats.npy", weights(np.float32))
np.save(HERE / "four_dimensions.npy", ids(np.int8).reshape(1, TOKENS, LAYERS, K))
