"""Tensor files as the safetensors package and torch.save write them, for tests without these packages."""

import io
import json
import math
import pickle
import struct
import sys
import types
import zipfile

# Names of a numpy type in struct, safetensors and torch.
TYPES = {
    "uint8": ("B", "U8", "ByteStorage"),
    "int16": ("h", "I16", "ShortStorage"),
    "int32": ("i", "I32", "IntStorage"),
    "int64": ("q", "I64", "LongStorage"),
    "float16": ("e", "F16", "HalfStorage"),
    "float32": ("f", "F32", "FloatStorage"),
    "float64": ("d", "F64", "DoubleStorage"),
}


class Tensor:
    def __init__(self, shape, values, dtype="int64"):
        """`values` are flat, with the last dimension fastest."""
        self.shape = tuple(shape)
        self.code, self.safetensors_type, self.torch_storage = TYPES[dtype]
        self.count = math.prod(self.shape)
        self.packed = struct.pack(f"<{self.count}{self.code}", *values)

    @classmethod
    def of(cls, array):
        """Makes a Tensor from a numpy array."""
        return cls(array.shape, array.ravel().tolist(), array.dtype.name)


def safetensors(tensors):
    """The bytes of a safetensors file; `tensors` maps names to tensors."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        end = len(data) + len(tensor.packed)
        header[name] = {"dtype": tensor.safetensors_type, "shape": tensor.shape, "data_offsets": [len(data), end]}
        data += tensor.packed
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def torch_file(value):
    """What torch.save writes for nested values that contain Tensors."""
    torch = types.ModuleType("torch")
    utils = types.ModuleType("torch._utils")

    def _rebuild_tensor_v2():
        pass

    storage_types = {storage: type(storage, (), {}) for _, _, storage in TYPES.values()}
    for thing, module in [(kind, torch) for kind in storage_types.values()] + [(_rebuild_tensor_v2, utils)]:
        thing.__module__, thing.__qualname__ = module.__name__, thing.__name__
        setattr(module, thing.__name__, thing)
    stored = []

    class Storage:
        def __init__(self, tensor):
            self.tensor = tensor

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            if not isinstance(thing, Storage):
                return None
            stored.append(thing.tensor)
            kind = storage_types[thing.tensor.torch_storage]
            return ("storage", kind, str(len(stored) - 1), "cpu", thing.tensor.count)

        def reducer_override(self, thing):
            if not isinstance(thing, Tensor):
                return NotImplemented
            strides = tuple(math.prod(thing.shape[i + 1 :]) for i in range(len(thing.shape)))
            return (_rebuild_tensor_v2, (Storage(thing), 0, thing.shape, strides, False, {}))

    data = io.BytesIO()
    sys.modules["torch"], sys.modules["torch._utils"] = torch, utils
    try:
        Pickler(data, protocol=2).dump(value)
    finally:
        del sys.modules["torch"], sys.modules["torch._utils"]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("file/data.pkl", data.getvalue())
        archive.writestr("file/byteorder", "little")
        for i, tensor in enumerate(stored):
            archive.writestr(f"file/data/{i}", tensor.packed)
        archive.writestr("file/version", "3\n")
    return buffer.getvalue()
