"""memory(): what one device holds of a Mixture-of-Experts model in training. The model is a module, on the meta device
or any other, a checkpoint's folder, or a config.json."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._arguments import called, choice, file_path, instance, invalid, number, public, thousandths
from ._reading import FilePath

if TYPE_CHECKING:
    from torch import nn

_SIZES = (
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_experts_per_tok",
    "tie_word_embeddings",
)
"""Sizes that transformers' configs offer under these names, whatever the config.json calls them."""
_WRAPPERS = re.compile(r"^(?:_orig_mod\.|module\.|base_model\.model\.)+|_orig_mod\.|(?<=\.)base_layer\.")
"""Parts that torch.compile and PEFT add to parameter names."""
_DEGREES = ("tp", "pp", "ep", "dp", "fsdp", "vp", "cp", "etp")
_TYPES = ("bfloat16", "float16", "float32")
_LAYERS = ("n_layers", "num_layers", "n_layer")
"""Other keys for the number of layers. They go first: one class's num_hidden_layers counts attention layers twice."""


@public
def memory(
    model: FilePath | nn.Module,
    *,
    parallel: Mapping[str, int] | str = "",
    sequence: int = 4096,
    micro_batch: int = 1,
    recompute: str = "full",
    attention: Literal["fused", "unfused"] = "fused",
    cross_entropy: Literal["plain", "fused", "chunked"] = "plain",
    bytes: Mapping[str, int] | str = "",
    with_terms: Sequence[str] | str = (),
    without: Sequence[str] | str = (),
    received: int | Literal["even"] | None = None,
    pipeline_layout: str = "",
    device: str | None = None,
    device_memory: int | str | None = None,
    available_ratio: float = 0.9,
    bins: Sequence[int] = (1, 2, 4, 8),
) -> dict[str, Any]:
    """The result of `evenkeel memory --json` (docs/command-line.md), for any model.

    Weights are counted one by one. For a module these are its parameters, sharded by its own `tp_plan` and by expert;
    parameters without requires_grad have no gradients or optimizer states. For a checkpoint's folder they are the
    tensors in its safetensors headers. A config.json alone works for the families in docs/families.md. Nothing is
    loaded, and a model on the meta device takes no memory.

    Args:
        model: a transformers model, or the path of a config.json or of a checkpoint's folder.
        parallel: devices by dimension, {"tp": 2, "pp": 1, "ep": 8, "dp": 8} or "tp=2,ep=8"; also vp, cp, etp, and
            "fsdp", which is dp with weights, gradients and optimizer states sharded. dp is by default the least that
            holds the experts. Without ep, a module's experts are sharded over tp if its plan does so (etp=tp).
        sequence, micro_batch: tokens of a sequence, and sequences of a micro-batch.
        recompute: "none", "full", or parts as Megatron-Core names them: "layernorm,moe_act".
        attention: "unfused" keeps scores and probabilities of every pair of tokens.
        cross_entropy: logits with an f32 copy ("plain"), without it ("fused"), or in chunks ("chunked").
        bytes: bytes per number, {"activation": 2, "weight": 2, "gradient": 4, "optimizer": 12}. Weights and activations
            default to the model's types. With f32 weights the optimizer takes 8, since it needs no master copy.
        with_terms, without: terms of docs/memory.md to turn on or off, as a list or "expert-outputs,logits".
        received: rows that the fullest device receives for a sequence, or "even"; None means the worst routing.
        pipeline_layout: layers of each piece ("3,4,4,3"), or as Megatron-Core writes it.
        device: the device's name, such as "h100".
        device_memory: instead of `device`, its memory: bytes, or a size ("80GB", the default).
        available_ratio: the usable share of the device's memory.
        bins: chunk counts to choose from.

    Returns:
        The command's JSON object. "stages" has each pipeline stage's bytes and, under "weights", how many weights of
        each kind the stage's fullest device holds, and their bytes in the tensors' own types. "model" has the number of
        weights of each kind over all devices, and the names of tensors of no known kind. "notes" say what is not
        counted.

    Raises:
        InvalidArgument: an option is out of range, or the model has no experts.
        ParseError: a config or checkpoint is damaged, or a key is missing.
        Unsupported: the weights of a lone config.json cannot be counted.

    Cost: linear in the number of tensors; milliseconds.
    """
    options = _native.MemoryOptions()
    degrees = _numbers(parallel, "parallel", 1, 1 << 20)
    for name in degrees:
        choice(name, "parallel", _DEGREES)
    terms = _words(with_terms, "with_terms")
    if "fsdp" in degrees:
        if "dp" in degrees:
            raise invalid("parallel", "has both dp and fsdp; fsdp is dp with everything sharded", "one of the two")
        degrees["dp"] = degrees.pop("fsdp")
        terms += [] if "fsdp" in terms else ["fsdp"]
    config, tensors = file_path(model, "model") if isinstance(model, (str, os.PathLike)) else "", None
    if tensors is None and not config:
        config, tensors = _of_module(model)
        options.transformers = True
        if degrees.get("ep", 1) == 1 and "etp" not in degrees:  # experts' copies are then sharded over dp only
            degrees["etp"] = degrees.get("tp", 1)
    options.parallel = degrees
    options.bytes = _numbers(bytes, "bytes", 0, 64)
    for name in options.bytes.keys() & {"activation", "weight"}:
        number(options.bytes[name], "bytes", 1)
    options.sequence = number(sequence, "sequence", 1, 1 << 32)
    options.micro_batch = number(micro_batch, "micro_batch", 1, 4096)
    options.recompute = instance(recompute, str, "recompute")
    options.unfused = choice(attention, "attention", ("fused", "unfused")) == "unfused"
    options.cross_entropy = choice(cross_entropy, "cross_entropy", ("plain", "fused", "chunked"))
    options.with_terms, options.without = ",".join(terms), ",".join(_words(without, "without"))
    options.even, options.received = isinstance(received, str), None
    if isinstance(received, str):
        choice(received, "received", ("even",))
    elif received is not None:
        options.received = number(received, "received", 0, 1 << 40)
    options.pipeline_layout = instance(pipeline_layout, str, "pipeline_layout")
    options.device, options.device_bytes = device or "", _device_bytes(device, device_memory)
    options.ratio_thousandths = thousandths(available_ratio, "available_ratio")
    if not 1 <= options.ratio_thousandths <= 1000:
        raise invalid("available_ratio", f"is {available_ratio}", "above 0 and at most 1")
    options.bins = [number(each, "bins", 1, 1 << 20) for each in instance(bins, Sequence, "bins")]
    with called("with_terms", "--with"), called("without", "--without"), called("cross_entropy", "--cross-entropy"):
        answer: dict[str, Any] = json.loads(_native.memory(config, tensors, options))
    if tensors is not None and degrees.get("tp", 1) > 1:
        answer["notes"] += _notes_of_plan(model)
    return answer


def _words(given: Sequence[str] | str, argument: str) -> list[str]:
    """Takes a list, or a text as in the command: "fsdp,logits"."""
    words = given.split(",") if isinstance(given, str) else [*instance(given, Sequence, argument)]
    return [instance(word, str, argument) for word in words if word != "" or not isinstance(given, str)]


def _numbers(given: Mapping[str, int] | str, argument: str, least: int, most: int) -> dict[str, int]:
    """Takes a mapping, or a text as in the command: "tp=2"."""
    if isinstance(given, str):
        pairs = [part.partition("=")[::2] for part in given.split(",")] if given else []
        if any(not count.isdecimal() or len(count) > 18 for _, count in pairs):
            raise invalid(argument, f"is {given!r}", 'names and numbers, as in "tp=2,ep=8"')
        if len({name for name, _ in pairs}) < len(pairs):
            raise invalid(argument, f"{given!r} has a name twice", "each once")
        given = {name: int(count) for name, count in pairs}
    return {
        str(name): number(count, argument, least, most) for name, count in instance(given, Mapping, argument).items()
    }


def _device_bytes(device: str | None, device_memory: int | str | None) -> int:
    if device is not None:
        if device_memory is not None:
            raise invalid("device_memory", "is already given by device", "one of the two")
        return _native.device_bytes(instance(device, str, "device"))
    if device_memory is None:
        return 80_000_000_000
    if isinstance(device_memory, str):
        return _native.parse_bytes(device_memory, "device_memory")
    return number(device_memory, "device_memory", 1, 1 << 56)


def _of_module(model: Any) -> tuple[str, list[_native.NamedTensor]]:
    """The module's config as JSON, and its parameters."""
    config: Any = getattr(model, "config", None)
    try:
        text = config.get_text_config()
        parameters = [*model.named_parameters()]
    except Exception:  # another object, a class, or a config of several language models
        raise invalid(
            "model", f"is a {type(model).__name__}", "a transformers model, or the path of a config.json or checkpoint"
        ) from None
    sizes = text.to_dict()
    for name in _SIZES:
        size = _size(text, name)
        sizes.pop(name, None)
        if size is not None and not (name == "num_hidden_layers" and any(other in sizes for other in _LAYERS)):
            sizes[name] = size
    dtypes = Counter(str(tensor.dtype).removeprefix("torch.") for _, tensor in parameters)
    sizes["dtype"] = next((name for name, _ in dtypes.most_common() if name in _TYPES), "auto")
    plan = getattr(model, "tp_plan", None) or {}
    tensors = [
        _native.NamedTensor(
            name,
            list(tensor.shape),
            _axis(name, tensor.dim(), plan),
            not plan,
            tensor.requires_grad,
            tensor.element_size(),
        )
        for name, tensor in parameters
    ]
    return json.dumps(sizes, default=str, skipkeys=True), tensors


def _size(config: Any, name: str) -> Any:
    """A size in the config; the largest one if it differs by layer."""
    try:
        size = getattr(config, name, None)
    except Exception:  # transformers raises it for a size that differs by layer
        size = [getattr(config.per_layer_config[layer], name, None) for layer in range(config.num_hidden_layers)]
    if isinstance(size, (list, tuple)):
        return max((each for each in size if each is not None), default=None)
    return size


def _axis(name: str, dimensions: int, plan: Mapping[str, str]) -> int | None:
    """The axis along which a transformers plan shards a tensor (tensor parallelism); None: whole on each device."""
    generic = re.sub(r"\.\d+(?=\.|$)", ".*", _WRAPPERS.sub("", name))
    style = plan.get(generic) or plan.get(generic.rpartition(".")[0], "")
    if "embedding_rowwise" in style:
        return 0
    if "colwise" in style:
        return dimensions - 1 if "embedding" in style else max(dimensions - 2, 0)
    return dimensions - 1 if "rowwise" in style and not name.endswith(".bias") else None


def _notes_of_plan(model: Any) -> list[str]:
    plan = getattr(model, "tp_plan", None) or {}
    cut = [name for name, style in plan.items() if "wise" in style]
    whole = [kind for kind in ("attn", "experts") if plan and not any(re.search(rf"{kind}\w*\.", name) for name in cut)]
    notes = [
        "activations are divided by tp, as with sequence parallelism, which transformers' plans do not have by default"
    ]
    if whole:
        notes.append(f"this model's plan does not split the weights of {' and '.join(whole)} over tp")
    return notes
