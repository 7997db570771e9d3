"""One of two ranks that record a model: each its own part of a batch, then the same batch with the experts divided.

usage: record_ranks.py RANK FOLDER      (FOLDER/model is a checkpoint)
"""

import os
import sys

import tiny_models
import torch
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

import evenkeel as ek
import evenkeel.torch

RANKS = 2


def main(rank, folder):
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(RANKS)}
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", world_size=RANKS, rank=int(rank))
    model, inputs = tiny_models.make("qwen3_moe")
    try:
        with evenkeel.torch.record(model, f"{folder}/trace.safetensors"):
            raise AssertionError("began with one file for two ranks")
    except ek.InvalidArgument as error:
        assert "{rank}" in str(error), error

    with evenkeel.torch.record(model, folder + "/synced.{rank}.safetensors") as recording:
        # Rank 0 ends first, and runs on for rank 1.
        model.generate(**inputs, max_new_tokens=3 + 2 * int(rank), do_sample=False, synced_gpus=True)
    length = inputs["input_ids"].shape[1] + 2 + 2 * int(rank)
    assert recording.tokens == 2 * length, (recording.tokens, length)

    data_parallel = torch.nn.parallel.DistributedDataParallel(model)
    own = inputs["input_ids"][:, : 2 + int(rank)]
    with evenkeel.torch.record(data_parallel, folder + "/own.{rank}.safetensors"):
        data_parallel(input_ids=own)

    config = DistributedConfig(tp_size=RANKS, ep_size=RANKS)
    divided = AutoModelForCausalLM.from_pretrained(f"{folder}/model", distributed_config=config).eval()
    with evenkeel.torch.record(divided, folder + "/divided.{rank}.safetensors"), torch.no_grad():
        divided(**inputs)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
