"""record(): the file has what the routers chose, whatever the model, or there is no file."""

import json
import os
import subprocess
import tracemalloc
import unittest
import warnings
from functools import partial

import numpy as np
import tiny_models
import torch
from processes import run_ranks
from recording_tests import Bare, Fixed, RecordTest, chosen_by_hand
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

import evenkeel as ek
import evenkeel.torch

COMMAND = os.environ.get("EVENKEEL_COMMAND", "")


def recorded_by_rank(rank, ranks, folder):
    """Each rank records its own part of a batch, then the same batch with experts divided over ranks."""
    model, inputs = tiny_models.make("qwen3_moe")
    try:
        with evenkeel.torch.record(model, f"{folder}/trace.safetensors"):
            raise AssertionError("began with one file for two ranks")
    except ek.InvalidArgument as error:
        assert "{rank}" in str(error), error

    with evenkeel.torch.record(model, folder + "/synced.{rank}.safetensors") as recording:
        # Rank 0 ends first, and keeps running for rank 1.
        model.generate(**inputs, max_new_tokens=3 + 2 * rank, do_sample=False, synced_gpus=True)
    length = inputs["input_ids"].shape[1] + 2 + 2 * rank
    assert recording.tokens == 2 * length, (recording.tokens, length)

    data_parallel = torch.nn.parallel.DistributedDataParallel(model)
    own = inputs["input_ids"][:, : 2 + rank]
    with evenkeel.torch.record(data_parallel, folder + "/own.{rank}.safetensors"):
        data_parallel(input_ids=own)

    config = DistributedConfig(tp_size=ranks, ep_size=ranks)
    divided = AutoModelForCausalLM.from_pretrained(f"{folder}/model", distributed_config=config).eval()
    with evenkeel.torch.record(divided, folder + "/divided.{rank}.safetensors"), torch.no_grad():
        divided(**inputs)


class WhatIsRecorded(RecordTest):
    def test_it_is_what_hooks_written_by_hand_see(self):
        for model_type in ("qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3"):
            with self.subTest(model_type):
                model, inputs = tiny_models.make(model_type)
                again = {"input_ids": torch.randint(1, 64, (3, 4))}
                ids, weights = chosen_by_hand(
                    model, ".mlp.experts", lambda m=model, a=(inputs, again): [m(**b) for b in a]
                )
                arrays = self.recorded(model, inputs, again, weights=True, metadata={"model": model_type})
                np.testing.assert_array_equal(arrays["topk_ids"], ids)
                np.testing.assert_array_equal(arrays["topk_weights"], weights)
                self.assertEqual(arrays["sequence_offsets"].tolist(), [0, 6, 12, 16, 20, 24])
                self.assertEqual(arrays["layers"].tolist(), [1, 2] if model_type == "deepseek_v3" else [0, 1, 2])
                self.assertEqual(
                    self.metadata, {"format": "evenkeel.trace.v1", "num_experts": "8", "model": model_type}
                )

    def test_every_expert_parallel_type_of_transformers_is_recorded(self):
        made = 0
        for model_type, make in tiny_models.tiny_models():
            with self.subTest(model_type):
                model, inputs = make()
                with evenkeel.torch.record(model, self.path), torch.no_grad():
                    recorded = model(**inputs)[0]
                profile = ek.RoutingProfile(self.path)
                self.assertEqual(profile.num_experts, tiny_models.EXPERTS)
                k = 1 if model_type == "zaya" else tiny_models.TOP_K
                self.assertEqual(set(profile.loads.sum(axis=1)), {tiny_models.BATCH * tiny_models.LENGTH * k})
                self.assertLessEqual(set(profile.layers), set(range(tiny_models.LAYERS)))
                self.assertGreaterEqual(profile.num_layers, 2)
                with torch.no_grad():
                    self.assertTrue(torch.equal(model(**inputs)[0], recorded))
                made += 1
        self.assertGreaterEqual(made, 60)

    def test_padding_is_left_out(self):
        model, _ = tiny_models.make("qwen3_moe")
        tokens = torch.randint(1, 64, (2, 5))
        padded = {"input_ids": tokens, "attention_mask": torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])}
        ids, _ = chosen_by_hand(model, ".experts", lambda: model(**padded))
        arrays = self.recorded(model, padded)
        np.testing.assert_array_equal(arrays["topk_ids"], ids[2:])
        self.assertEqual(arrays["sequence_offsets"].tolist(), [0, 3, 8])

    def test_activation_checkpointing_records_each_token_once(self):
        model, inputs = tiny_models.make("qwen3_moe")
        once = self.recorded(model, inputs)["topk_ids"]
        model.train()
        model.activation_checkpointing_enable()
        with evenkeel.torch.record(model, self.path):
            model(**inputs, labels=inputs["input_ids"]).loss.backward()
        np.testing.assert_array_equal(self.arrays()["topk_ids"], once)
        for reentrant in (True, False):  # the whole model runs once more in backward
            with evenkeel.torch.record(model, self.path):
                embeddings = model.get_input_embeddings()(inputs["input_ids"])
                logits = checkpoint(lambda x: model(inputs_embeds=x).logits, embeddings, use_reentrant=reentrant)
                logits.sum().backward()
            np.testing.assert_array_equal(self.arrays()["topk_ids"], once)

    def test_tokens_given_by_place_are_found(self):
        model, inputs = tiny_models.make("mixtral")
        with evenkeel.torch.record(model, self.path), torch.no_grad():
            model(inputs["input_ids"])
        self.assertEqual(self.arrays()["sequence_offsets"].tolist(), [0, 6, 12])

    def test_no_expert_in_a_place_stays_no_expert(self):
        with evenkeel.torch.record(model := Fixed(Bare()), self.path):
            model(torch.tensor([[0, -1], [3, 1]]))
        self.assertEqual(self.arrays()["topk_ids"].tolist(), [[[0, -1]], [[3, 1]]])

    def test_ids_have_the_narrowest_type(self):
        for experts, dtype in ((128, "int8"), (129, "int16")):
            with evenkeel.torch.record(model := Fixed(Bare(experts)), self.path):
                model(torch.tensor([[experts - 1]]))
            self.assertEqual((self.arrays()["topk_ids"].dtype, self.arrays()["topk_ids"].item()), (dtype, experts - 1))

    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_the_command_reads_it(self):
        model, inputs = tiny_models.make("deepseek_v3")
        self.recorded(model, inputs, weights=True)
        done = subprocess.run([COMMAND, "profile", self.path, "--json"], capture_output=True, check=True)
        said = json.loads(done.stdout)
        self.assertEqual((said["num_layers"], said["num_experts"], said["layer_numbers"]), (2, 8, [1, 2]))


class PackedSequences(RecordTest):
    LENGTHS = (4, 1, 5)

    def setUp(self):
        super().setUp()
        self.model, _ = tiny_models.make("qwen3_moe")
        self.tokens = torch.randint(1, 64, (1, 10))
        self.positions = torch.cat([torch.arange(length) for length in self.LENGTHS])[None]

    def test_positions_that_restart_begin_a_sequence(self):
        # Without a cache, transformers attends within each such sequence only.
        packed = {"input_ids": self.tokens, "position_ids": self.positions, "use_cache": False}
        arrays = self.recorded(self.model, packed)
        pieces = self.tokens.split(self.LENGTHS, dim=1)
        alone, _ = chosen_by_hand(self.model, ".experts", lambda: [self.model(piece) for piece in pieces])
        np.testing.assert_array_equal(arrays["topk_ids"], alone)
        self.assertEqual(arrays["sequence_offsets"].tolist(), [0, 4, 5, 10])

    def test_each_way_to_say_it_is_heard(self):
        numbers = torch.tensor([[1, 1, 1, 1, 2, 3, 3, 3, 3, 0]])
        for offsets, said in (
            ([0, 4, 5, 10], {"cu_seq_lens_q": torch.tensor([0, 4, 5, 10], dtype=torch.int32)}),
            ([0, 4, 5, 10], {"seq_idx": torch.tensor([[0] * 4 + [1] + [2] * 5], dtype=torch.int32)}),
            ([0, 4, 5, 9], {"attention_mask": numbers}),
            ([0, 4, 5, 9], {"attention_mask": numbers.clamp(max=1), "position_ids": self.positions}),
            ([0, 10], {"position_ids": torch.arange(3, 13)[None]}),
            ([0, 4, 10], {"position_ids": torch.tensor([[0, 1, 2, 3, 7, 8, 9, 10, 11, 12]])}),
        ):
            with self.subTest(said=list(said)):
                given = {"input_ids": self.tokens, **said}
                ids, _ = chosen_by_hand(self.model, ".experts", lambda given=given: self.model(**given))
                arrays = self.recorded(self.model, given)
                np.testing.assert_array_equal(arrays["topk_ids"], ids[: offsets[-1]])
                self.assertEqual(arrays["sequence_offsets"].tolist(), offsets)

    def test_positions_of_padding_begin_nothing(self):
        mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
        positions = torch.tensor([[1, 1, 0, 1, 2], [0, 1, 2, 1, 1]])
        given = {"input_ids": self.tokens.view(2, 5), "attention_mask": mask, "position_ids": positions}
        arrays = self.recorded(self.model, given)
        self.assertEqual(arrays["sequence_offsets"].tolist(), [0, 3, 6])
        mask = torch.tensor([[1, 1, 0, 0, 1], [1, 1, 1, 1, 1]])  # positions go on counting at masked tokens
        arrays = self.recorded(self.model, given | {"attention_mask": mask, "position_ids": torch.arange(5)[None]})
        self.assertEqual(arrays["sequence_offsets"].tolist(), [0, 3, 8])

    def test_lengths_that_are_not_those_of_the_tokens_are_refused(self):
        given = {"input_ids": self.tokens, "cu_seq_lens_q": torch.tensor([0, 4, 9])}
        with self.assertRaisesRegex(ek.Unsupported, "end at 9, and the forward has 1 x 10 tokens"):
            self.recorded(self.model, given)


class WhatIsRefused(RecordTest):
    def test_an_error_in_the_recording_leaves_no_file_or_the_one_that_was_there(self):
        model, inputs = tiny_models.make("qwen3_moe")
        for before in ([], ["before"]):  # an existing file keeps its content
            for text in before:
                self.path.write_text(text)
            with self.assertRaisesRegex(RuntimeError, "mine"), evenkeel.torch.record(model, self.path):
                model(**inputs)
                raise RuntimeError("mine")
            self.assertEqual([path.read_text() for path in self.folder.iterdir()], before)
            model(**inputs)  # record() has removed its hooks

    def test_a_failed_forward_leaves_no_tokens(self):
        with evenkeel.torch.record(model := Fixed(Bare(), Bare()), self.path):
            with self.assertRaises(ValueError):
                model(torch.tensor([[0]]))  # one layer's ids are missing
            model(torch.tensor([[1]]), torch.tensor([[2]]))
        self.assertEqual(self.arrays()["topk_ids"].tolist(), [[[1], [2]]])

    def test_what_is_not_a_trace(self):
        one, two = torch.tensor([[0]]), torch.tensor([[0, 1]])
        self.assert_refused(ek.InvalidArgument, "(hidden_states, top_k_index, top_k_weights)", torch.nn.Linear(1, 1))
        self.assert_refused(ek.Unsupported, "layers.0 has 4 experts and layers.1 8", Fixed(Bare(4), Bare(8)), one, one)
        self.assert_refused(ek.Unsupported, "has 1 choices a token and layers.1 2", Fixed(Bare(), Bare()), one, two)
        self.assert_refused(
            ek.Unsupported, "expert id 4 of token 0 is outside 0..3", Fixed(Bare()), torch.tensor([[4]])
        )
        self.assert_refused(ek.Unsupported, "runs several times", Fixed(*[Bare()] * 2), one, one)
        self.assert_refused(
            ek.Unsupported,
            "layers.0 has ids of shape [1, 1], but layers.1 of [2, 1]",
            Fixed(Bare(), Bare()),
            one,
            torch.tensor([[0], [1]]),
        )

    def test_experts_of_some_forwards_only(self):
        one = torch.tensor([[0]])
        model = Fixed(Bare(), Bare())
        run = lambda: [model(one, other) for other in (one, None)]  # noqa: E731
        self.assert_refused(ek.Unsupported, "layers.1 ran in some", model, run=run)

        class Pair(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = Fixed(Bare()), Fixed(Bare())

            def forward(self, ids):
                self.encoder(ids)
                self.decoder(ids)

        pair, one = Pair(), torch.tensor([[0]])
        self.assert_refused(ek.Unsupported, "in encoder.layers and in decoder.layers", pair, one)
        with evenkeel.torch.record(pair.decoder, self.path):
            pair(one)
        self.assertEqual(self.arrays()["layers"].tolist(), [0])

    def test_a_model_that_is_not_the_one_called(self):
        self.assert_refused(ek.InvalidArgument, "ran no forward", NotCalled(Bare()), torch.tensor([[0]]))
        model, inputs = tiny_models.make("qwen3_moe")
        said = "record the module that is called"
        self.assert_refused(ek.Unsupported, said, model, run=lambda: model.model(**inputs))

    def test_masks_that_do_not_say_which_tokens_are_padding(self):
        model, inputs = tiny_models.make("qwen3_moe")
        for message, mask in (
            ("a Tensor of shape [2, 1, 6, 6] as attention_mask", torch.ones(2, 1, 6, 6, dtype=torch.bool)),
            ("attention_mask has numbers below 0", torch.full((2, 6), -1.0)),
        ):
            run = partial(model, **inputs, attention_mask=mask)
            self.assert_refused(ek.Unsupported, message, model, run=run)

    def test_words_and_paths(self):
        model = Fixed(Bare())
        for path, metadata in (
            ("", None),
            (self.folder / "not there" / "trace", None),
            (self.path, {"num_experts": "8"}),
            (self.path, {"a": 1}),
        ):
            with self.assertRaises(ek.InvalidArgument), evenkeel.torch.record(model, path, metadata=metadata):
                self.fail("began")


class NotCalled(Fixed):
    def __call__(self, *ids):
        return None


class WhatItTakes(RecordTest):
    def test_memory_does_not_grow_with_the_recording(self):
        model = Fixed(*(Bare(256) for _ in range(8)))
        ids = torch.randint(0, 256, (512, 8))

        def peak_of(forwards):
            tracemalloc.start()
            with evenkeel.torch.record(model, self.path, weights=True):
                for _ in range(forwards):
                    model(*[ids] * 8)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return peak

        few, many = peak_of(4), peak_of(400)
        size = self.path.stat().st_size
        self.assertGreater(size, 70_000_000)
        self.assertLess(many, few + 2**20)
        self.assertEqual(self.arrays()["topk_ids"].shape, (400 * 512, 8, 8))

    def test_ranks_write_a_file_each_with_the_ids_of_the_whole_model(self):
        model, inputs = tiny_models.make("qwen3_moe")
        model.save_pretrained(self.folder / "model")
        run_ranks(2, recorded_by_rank, str(self.folder))
        self.recorded(model, inputs)
        alone = ek.RoutingProfile(self.path)
        for rank in range(2):
            own = ek.RoutingProfile(self.folder / f"own.{rank}.safetensors")
            self.assertEqual(set(own.loads.sum(axis=1)), {2 * (2 + rank) * 2})
            self.assertEqual(ek.RoutingProfile(self.folder / f"divided.{rank}.safetensors"), alone)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
