"""record(): the file says what the routers chose, whatever the model, or there is no file."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import unittest
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import tiny_models
import torch
from safetensors import safe_open
from torch.utils.checkpoint import checkpoint
from transformers import CompileConfig, DynamicCache

import evenkeel as ek
import evenkeel.torch

COMMAND = os.environ.get("EVENKEEL_COMMAND", "")


def chosen_by_hand(model, suffix, run):
    """The ids and weights that experts are called with, `[tokens, layers, k]`, by hooks on modules of a known name."""
    ids, weights, hooks = {}, {}, []
    for name, module in model.named_modules():
        if name.endswith(suffix):

            def take(module, arguments, named, name=name):
                _, top_k, scale = [*arguments, *named.values()]
                ids.setdefault(name, []).append(top_k)
                weights.setdefault(name, []).append(scale.float())

            hooks.append(module.register_forward_pre_hook(take, with_kwargs=True))
    with torch.no_grad():
        run()
    for hook in hooks:
        hook.remove()
    return tuple(np.stack([torch.cat(calls).numpy() for calls in each.values()], 1) for each in (ids, weights))


class Bare(torch.nn.Module):
    """The least that is taken for experts."""

    def __init__(self, num_experts=4):
        super().__init__()
        self.num_experts = num_experts

    def forward(self, hidden_states, top_k_index, top_k_weights):
        return hidden_states


class Fixed(torch.nn.Module):
    """A model that chooses what it is told: ids, a tensor `[tokens, k]` for each layer."""

    def __init__(self, *experts):
        super().__init__()
        self.layers = torch.nn.ModuleList(experts)

    def forward(self, *ids):
        for experts, chosen in zip(self.layers, ids, strict=True):
            if chosen is not None:
                experts(torch.zeros(len(chosen), 1), chosen, torch.ones(chosen.shape))


class RecordTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "trace.safetensors"

    def recorded(self, model, *calls, **options):
        with evenkeel.torch.record(model, self.path, **options), torch.no_grad():
            for call in calls:
                model(**call)
        return self.arrays()

    def arrays(self):
        with safe_open(self.path, "numpy") as file:
            self.metadata = file.metadata()
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def assert_refused(self, error_type, message, model, *ids):
        with self.assertRaises(error_type) as caught, evenkeel.torch.record(model, self.path):
            model(*ids)
        self.assertIn(message, str(caught.exception))
        self.assertTrue(caught.exception.data)
        self.assertEqual(list(self.folder.iterdir()), [])


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
        model.gradient_checkpointing_enable()
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


ENDS = [3, 7, 11, 12, 22, 40, 50]
"""So many that rows of a random model end, and at different times."""


def generating(model_type="qwen3_moe", **sizes):
    """A model, prompts of 3 and 5 tokens (padded on the left) and of 5, and options that end rows early."""
    model, _ = tiny_models.make(model_type, **sizes)
    torch.manual_seed(1)
    prompts = torch.randint(1, 64, (4, 5))
    mask = torch.ones_like(prompts)
    prompts[0, :2] = mask[0, :2] = 0
    return model, {"input_ids": prompts, "attention_mask": mask, "max_new_tokens": 12, "eos_token_id": ENDS}


class WhatGenerateRuns(RecordTest):
    """Each returned sequence is run alone, in a plain forward, with hooks on the experts: that is what must be there."""

    def assert_recorded_as_alone(self, model, options):
        """Returns how many tokens each sequence has."""
        again = torch.random.get_rng_state()
        plain = model.generate(**options | {"disable_compile": True})
        torch.random.set_rng_state(again)
        with evenkeel.torch.record(model, self.path, weights=True) as recording:
            result = model.generate(**options)
        self.assertIs(type(result), type(plain))
        self.assertNotIn("generate", vars(model))
        sequences = getattr(result, "sequences", result)
        self.assertTrue(torch.equal(sequences, getattr(plain, "sequences", plain)))
        prompts = options["input_ids"]
        prompts = prompts.repeat_interleave(len(sequences) // len(prompts), dim=0)
        runs = map(self.run_of, sequences, prompts)
        alone = [
            chosen_by_hand(model, ".mlp.experts", lambda run=run: model(input_ids=run[None], use_cache=False))
            for run in runs
        ]
        self.assertEqual(recording.tokens, sum(len(ids) for ids, _ in alone))
        arrays = self.arrays()
        np.testing.assert_array_equal(arrays["topk_ids"], np.concatenate([ids for ids, _ in alone]))
        weights = np.concatenate([weights for _, weights in alone])
        np.testing.assert_allclose(arrays["topk_weights"], weights, rtol=1e-3, atol=1e-5)
        lengths = [len(ids) for ids, _ in alone]
        self.assertEqual(np.diff(arrays["sequence_offsets"]).tolist(), lengths)
        return lengths

    def run_of(self, sequence, prompt):
        """The tokens that generate() must run: neither padding, nor the one that ends a sequence, nor what follows."""
        generated = sequence[len(prompt) :].tolist()
        ends = [at for at, token in enumerate(generated) if token in ENDS]
        return sequence[int((prompt == 0).sum()) : len(prompt) + (ends[0] if ends else len(generated) - 1)]

    def test_rows_that_have_ended_are_left_out(self):
        for model_type in ("qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3"):
            for more in ({"pad_token_id": 0}, {"pad_token_id": ENDS[0]}, {"do_sample": True, "max_new_tokens": 24}):
                with self.subTest(model_type, **more):
                    model, options = generating(model_type)
                    lengths = self.assert_recorded_as_alone(model, options | more)
                    self.assertGreater(len(set(lengths)), 2)

    def test_every_type_that_generates_is_recorded_as_in_forwards_of_what_it_returned(self):
        made = 0
        for model_type, make in tiny_models.tiny_models():
            model, _ = make()
            if not hasattr(model, "generate"):
                continue
            with self.subTest(model_type):
                _, options = generating()
                options |= {"max_new_tokens": 5, "pad_token_id": 0, "bos_token_id": None}
                with evenkeel.torch.record(model, self.path):
                    sequences = model.generate(**options)
                of_generate = self.arrays()
                runs = map(self.run_of, sequences, options["input_ids"])
                alone = self.recorded(model, *({"input_ids": run[None], "use_cache": False} for run in runs))
                for name in ("topk_ids", "sequence_offsets"):
                    np.testing.assert_array_equal(of_generate[name], alone[name])
                made += 1
        self.assertGreaterEqual(made, 55)

    def test_a_row_that_a_criterion_of_the_caller_ends_has_ended(self):
        model, options = generating()
        ends = torch.tensor(options.pop("eos_token_id"))
        options["stopping_criteria"] = [lambda ids, scores: torch.isin(ids[:, -1], ends)]
        lengths = self.assert_recorded_as_alone(model, options)
        self.assertGreater(len(set(lengths)), 2)

    def test_of_beams_those_that_are_returned_are_recorded_once(self):
        for more in ({}, {"num_return_sequences": 2}, {"use_cache": False}, {"return_dict_in_generate": True}):
            with self.subTest(**more):
                model, options = generating()
                lengths = self.assert_recorded_as_alone(model, options | {"num_beams": 3} | more)
                self.assertGreater(len(set(lengths)), 2)

    def test_several_sequences_of_a_prompt_have_it_each(self):
        model, options = generating()
        torch.manual_seed(3)
        self.assert_recorded_as_alone(model, options | {"num_return_sequences": 3, "do_sample": True})

    def test_the_cache_and_the_size_of_chunks_change_nothing(self):
        compiled = CompileConfig()
        compiled._compile_all_devices = True  # as on a GPU, where generate() compiles the forwards of static caches
        for more in (
            {"cache_implementation": "static"},
            {"cache_implementation": "static", "num_beams": 2},
            {"cache_implementation": "static", "compile_config": compiled},
            {"prefill_chunk_size": 2},
            {"prefill_chunk_size": 2, "cache_implementation": "static"},
            {"use_cache": False},
        ):
            for model_type in ("qwen3_moe", "gpt_oss"):  # gpt_oss has sliding windows: masks are a dict
                with self.subTest(model_type, **more):
                    model, options = generating(model_type)
                    with mock.patch.object(model, "get_compiled_call", side_effect=AssertionError("compiled")):
                        self.assert_recorded_as_alone(model, options | more)

    def test_padding_on_the_right_is_left_out(self):
        model, options = generating()
        mask = torch.ones(4, 5, dtype=torch.long)
        mask[2, 3:] = 0
        options |= {"attention_mask": mask}
        with evenkeel.torch.record(model, self.path) as recording:
            sequences = model.generate(**options)
        ended = [next((at for at in range(5, len(row)) if row[at] in ENDS), len(row) - 1) for row in sequences]
        runs = [row[:end] for row, end in zip(sequences, ended, strict=True)]
        runs[2] = torch.cat([runs[2][:3], runs[2][5:]])
        of_generate = self.arrays()
        alone = self.recorded(model, *({"input_ids": run[None]} for run in runs))
        np.testing.assert_array_equal(of_generate["sequence_offsets"], alone["sequence_offsets"])
        same = np.ones(recording.tokens, dtype=bool)
        first = int(alone["sequence_offsets"][2])
        same[first + 3 : first + len(runs[2])] = False  # generate() has other positions behind such padding
        np.testing.assert_array_equal(of_generate["topk_ids"][same], alone["topk_ids"][same])

    def test_drafts_that_are_rejected_are_left_out(self):
        model, options = generating()
        worse, _ = tiny_models.make("qwen3_moe", num_hidden_layers=1, layer_types=["full_attention"])
        twin, _ = tiny_models.make("qwen3_moe")  # all of whose drafts are accepted
        for row in range(1, 4):
            prompt = {name: options[name][row : row + 1] for name in ("input_ids", "attention_mask")}
            for more in ({"assistant_model": worse}, {"assistant_model": twin}, {"prompt_lookup_num_tokens": 3}):
                with self.subTest(row=row, by=list(more)):
                    self.assert_recorded_as_alone(model, options | prompt | more)

    def test_a_prompt_of_embeddings_is_recorded(self):
        model, options = generating()
        options["pad_token_id"] = 0
        whole = model.generate(**options)
        self.assert_recorded_as_alone(model, options)
        before = self.arrays()
        embeddings = model.get_input_embeddings()(options.pop("input_ids"))
        with evenkeel.torch.record(model, self.path):
            generated = model.generate(inputs_embeds=embeddings, **options)
        self.assertTrue(torch.equal(generated, whole[:, 5:]))
        for name in ("topk_ids", "sequence_offsets"):
            np.testing.assert_array_equal(self.arrays()[name], before[name])

    def test_a_cache_of_earlier_calls_leaves_sequences_unsaid(self):
        model, options = generating()
        options |= {"attention_mask": None, "input_ids": options["input_ids"][1:2]}
        ids, _ = chosen_by_hand(model, ".experts", lambda: model(options["input_ids"]))
        message = "a forward goes on from a cache: the trace will not say its sequences"
        with evenkeel.torch.record(model, self.path) as recording:
            cache = DynamicCache(config=model.config)
            first = model.generate(**options, cache=cache)
            self.assertEqual(recording.tokens, first.shape[1] - 1)
            longer = torch.cat([first, first[:, :4]], dim=1)
            with self.assertWarnsRegex(UserWarning, message):
                second = model.generate(**options | {"input_ids": longer}, cache=cache)
        arrays = self.arrays()
        self.assertNotIn("sequence_offsets", arrays)
        ids, _ = chosen_by_hand(model, ".experts", lambda: model(second[:, :-1]))
        np.testing.assert_array_equal(arrays["topk_ids"], ids)

        with evenkeel.torch.record(model, self.path), torch.no_grad():
            cache = model(second[:, :7], use_cache=True).cache
            with self.assertWarnsRegex(UserWarning, message):
                model(second[:, 7:-1], cache=cache)
        np.testing.assert_array_equal(self.arrays()["topk_ids"], ids)
        self.assertNotIn("sequence_offsets", self.arrays())
        self.assertEqual(ek.RoutingProfile(self.path).num_layers, 3)

    def test_what_cannot_be_known_is_refused(self):
        model, options = generating()
        one = options | {"input_ids": options["input_ids"][1:2], "attention_mask": None}
        for message, call in (
            (
                "several forwards for one token, as guidance_scale",
                lambda: model.generate(**options, guidance_scale=2.0),
            ),
            ("calls itself, as assistant_early_exit", lambda: model.generate(**one, assistant_early_exit=1)),
            ("continuous batching mixes requests", lambda: model.generate_batch(one["input_ids"].tolist())),
        ):
            with (
                self.subTest(message),
                self.assertRaisesRegex(ek.Unsupported, message),
                evenkeel.torch.record(model, self.path),
            ):
                call()
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_loop_that_is_not_of_transformers_is_refused(self):
        class Loop(Fixed):
            def generate(self, *ids):
                return self(*ids)

        model = Loop(Bare())
        message = r"generate\(\) of Loop does not say which sequences have ended"
        with self.assertRaisesRegex(ek.Unsupported, message), evenkeel.torch.record(model, self.path):
            model.generate(torch.tensor([[0]]))

    def test_a_loop_that_returns_other_tokens_than_it_ran_is_refused(self):
        model, options = generating()

        def sample(model, input_ids, **given):
            return type(model)._sample(model, input_ids, **given)

        def guided(model, input_ids, logits_processor, **given):
            def twice(ids, scores):
                if ids.shape[1] > 5:  # behind the prompt
                    model(ids[:, -1:], use_cache=False)
                return scores

            return sample(model, input_ids, logits_processor=twice, **given)

        for message, custom in (
            ("runs other tokens than it returns; record", lambda *a, **given: sample(*a, **given).flip(1)),
            ("runs 4 rows and returns 3 sequences", lambda *a, **given: sample(*a, **given)[:3]),
            ("returns a list, or never asks", lambda *a, **given: sample(*a, **given).tolist()),
            ("runs several forwards for one token", guided),
        ):
            with (
                self.subTest(message),
                self.assertRaisesRegex(ek.Unsupported, message),
                evenkeel.torch.record(model, self.path),
            ):
                model.generate(**options, custom_generate=custom)
            self.assertEqual(list(self.folder.iterdir()), [])


class PackedSequences(RecordTest):
    LENGTHS = (4, 1, 5)

    def setUp(self):
        super().setUp()
        self.model, _ = tiny_models.make("qwen3_moe")
        self.tokens = torch.randint(1, 64, (1, 10))
        self.positions = torch.cat([torch.arange(length) for length in self.LENGTHS])[None]

    def test_positions_that_restart_begin_a_sequence(self):
        # Without a cache, transformers keeps such sequences apart.
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
        mask = torch.tensor([[1, 1, 0, 0, 1], [1, 1, 1, 1, 1]])  # positions go on behind what is left out
        arrays = self.recorded(self.model, given | {"attention_mask": mask, "position_ids": torch.arange(5)[None]})
        self.assertEqual(arrays["sequence_offsets"].tolist(), [0, 3, 8])

    def test_lengths_that_are_not_those_of_the_tokens_are_refused(self):
        given = {"input_ids": self.tokens, "cu_seq_lens_q": torch.tensor([0, 4, 9])}
        with self.assertRaisesRegex(ek.Unsupported, "end at 9, and the forward has 1 x 10 tokens"):
            self.recorded(self.model, given)


class WhatIsRefused(RecordTest):
    def test_an_error_in_the_recording_leaves_no_file(self):
        model, inputs = tiny_models.make("qwen3_moe")
        with self.assertRaisesRegex(RuntimeError, "mine"), evenkeel.torch.record(model, self.path):
            model(**inputs)
            raise RuntimeError("mine")
        self.assertEqual(list(self.folder.iterdir()), [])
        model(**inputs)  # nothing listens any more

    def test_a_file_that_was_there_stays_as_it_was_until_the_end(self):
        self.path.write_text("before")
        model, inputs = tiny_models.make("qwen3_moe")
        with self.assertRaises(RuntimeError), evenkeel.torch.record(model, self.path):
            model(**inputs)
            raise RuntimeError
        self.assertEqual(self.path.read_text(), "before")

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
        self.assert_refused(ek.Unsupported, "for [1, 1] tokens", Fixed(Bare(), Bare()), one, torch.tensor([[0], [1]]))
        self.assert_refused(ek.Unsupported, "layer 0 of ", torch.nn.ModuleDict(), one) if False else None

    def test_experts_of_some_forwards_only(self):
        one = torch.tensor([[0]])
        model = Fixed(Bare(), Bare())
        with self.assertRaisesRegex(ek.Unsupported, "layers.1 ran in some"), evenkeel.torch.record(model, self.path):
            model(one, one)
            model(one, None)
        self.assertEqual(list(self.folder.iterdir()), [])

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
        wrong = self.assertRaisesRegex(ek.Unsupported, "record the module that is called")
        with wrong, evenkeel.torch.record(model, self.path):
            model.model(**inputs)

    def test_masks_that_do_not_say_which_tokens_are_padding(self):
        model, inputs = tiny_models.make("qwen3_moe")
        for message, mask in (
            ("a Tensor of shape [2, 1, 6, 6] as attention_mask", torch.ones(2, 1, 6, 6, dtype=torch.bool)),
            ("attention_mask has numbers below 0", torch.full((2, 6), -1.0)),
        ):
            with self.assertRaises(ek.Unsupported) as caught, evenkeel.torch.record(model, self.path):
                model(**inputs, attention_mask=mask)
            self.assertIn(message, str(caught.exception))

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


class Waiting(Fixed):
    """A forward that goes on when it is told."""

    def __init__(self, *experts):
        super().__init__(*experts)
        self.began, self.goes_on = threading.Event(), threading.Event()

    def forward(self, ids, waits=False):
        if waits:
            self.began.set()
            self.goes_on.wait(60)
        super().forward(ids)


class ThreadsAndOtherCalls(RecordTest):
    def setUp(self):
        super().setUp()
        self.died = []
        hook = mock.patch.object(threading, "excepthook", self.died.append)
        hook.start()
        self.addCleanup(hook.stop)

    def test_a_block_that_ends_while_generate_runs_leaves_no_file(self):
        model, options = generating()
        model(options["input_ids"])
        for tokens in (0, 3, 8):  # the block ends behind so many forwards
            ended, waits = threading.Event(), threading.Event()
            calls = []

            def criterion(ids, scores, calls=calls, waits=waits, ended=ended, tokens=tokens):
                calls.append(ids)
                if len(calls) == tokens + 1:
                    waits.set()
                    ended.wait(60)
                return torch.zeros(len(ids), dtype=torch.bool)

            options |= {"stopping_criteria": [criterion], "eos_token_id": None}
            message = r"generate\(\) still runs in .*; join its thread before the block ends"
            with self.assertRaisesRegex(ek.Unsupported, message), evenkeel.torch.record(model, self.path):
                model(options["input_ids"])
                thread = threading.Thread(target=model.generate, kwargs=options)
                thread.start()
                waits.wait(60)
            for name in ("generate", "_get_stopping_criteria", "prepare_inputs_for_generation"):
                self.assertNotIn(name, vars(model))
            ended.set()
            thread.join()
            self.assertEqual(len(calls), 12)
            self.assertEqual(self.died, [])
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_thread_that_is_joined_is_recorded(self):
        model, options = generating()
        with evenkeel.torch.record(model, self.path):
            model.generate(**options)
        here = self.arrays()
        with evenkeel.torch.record(model, self.path):
            thread = threading.Thread(target=model.generate, kwargs=options)
            thread.start()
            thread.join()
        np.testing.assert_array_equal(self.arrays()["topk_ids"], here["topk_ids"])

    def test_forwards_of_two_threads_at_once_leave_no_file(self):
        model, one = Waiting(Bare()), torch.tensor([[0]])
        thread = threading.Thread(target=model, args=(one, True), name="first")
        with (
            self.assertRaisesRegex(ek.Unsupported, "began in MainThread while a forward ran in first"),
            evenkeel.torch.record(model, self.path),
        ):
            thread.start()
            model.began.wait(60)
            with self.assertRaises(ek.Unsupported):
                model(one)
            model.goes_on.set()
            thread.join()
        self.assertEqual((self.died, list(self.folder.iterdir())), ([], []))

    def test_a_forward_that_outlives_the_block_leaves_no_file(self):
        model, one = Waiting(Bare()), torch.tensor([[0]])
        thread = threading.Thread(target=model, args=(one, True), name="first")
        message = "a forward still runs in first; join"
        with self.assertRaisesRegex(ek.Unsupported, message), evenkeel.torch.record(model, self.path):
            model(one)
            thread.start()
            model.began.wait(60)
        model.goes_on.set()
        thread.join()
        self.assertEqual((self.died, list(self.folder.iterdir())), ([], []))

    def test_a_failed_forward_runs_no_longer(self):
        model = Fixed(Bare())

        def fail():
            with self.assertRaises(ValueError):
                model()
            failed.set()
            ended.wait(60)

        failed, ended = threading.Event(), threading.Event()
        thread = threading.Thread(target=fail)
        with evenkeel.torch.record(model, self.path):
            thread.start()
            failed.wait(60)
            model(torch.tensor([[1]]))
        ended.set()
        thread.join()
        self.assertEqual(self.arrays()["topk_ids"].tolist(), [[[1]]])

    def test_generate_that_is_not_the_method_of_the_recorded_model_is_refused(self):
        model, options = generating()
        bound = model.generate
        for module, message, call in (
            (model.model, "runs Qwen3MoeModel; record that Qwen3MoeForCausalLM", bound),
            (model, r"is not followed; call model.generate\(\)", bound),
            (model, r"is not followed; call model.generate\(\)", lambda **given: type(model).generate(model, **given)),
        ):
            for more in ({}, {"use_cache": False}, {"num_beams": 2}, {"prefill_chunk_size": 2}):
                with (
                    self.subTest(message, **more),
                    self.assertRaisesRegex(ek.Unsupported, message),
                    evenkeel.torch.record(module, self.path),
                ):
                    call(**options | more)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_refusal_in_a_thread_leaves_no_file(self):
        model, options = generating()
        thread = threading.Thread(target=model.generate, kwargs=options)  # not the method that record() puts there
        with self.assertRaisesRegex(ek.Unsupported, "is not followed"), evenkeel.torch.record(model, self.path):
            model(options["input_ids"])
            thread.start()
            thread.join()
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_generate_that_failed_is_no_forward(self):
        model, options = generating()
        message = "ran no forward while it was recorded"
        with self.assertRaisesRegex(ek.InvalidArgument, message), evenkeel.torch.record(model, self.path):  # noqa: SIM117
            with self.assertRaises(ZeroDivisionError):
                model.generate(**options, stopping_criteria=[lambda ids, scores: 1 // 0])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_base_model_of_a_wrapper_is_to_be_recorded(self):
        class Wrap(torch.nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base = base

            def generate(self, **options):
                return self.base.generate(**options)

        model, options = generating()
        wrap = Wrap(model)
        message = r"whose generate\(\) calls the base model, the base model"
        with self.assertRaisesRegex(ek.Unsupported, message), evenkeel.torch.record(wrap, self.path):
            wrap.generate(**options)
        with evenkeel.torch.record(model, self.path):
            wrap.generate(**options)


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
        script = Path(__file__).with_name("record_ranks.py")
        ranks = [subprocess.Popen([sys.executable, script, str(rank), self.folder]) for rank in range(2)]
        self.assertEqual([rank.wait(300) for rank in ranks], [0, 0])
        self.recorded(model, inputs)
        alone = ek.RoutingProfile(self.path)
        for rank in range(2):
            own = ek.RoutingProfile(self.folder / f"own.{rank}.safetensors")
            self.assertEqual(set(own.loads.sum(axis=1)), {2 * (2 + rank) * 2})
            self.assertEqual(ek.RoutingProfile(self.folder / f"divided.{rank}.safetensors"), alone)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
