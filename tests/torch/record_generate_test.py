"""record() around generate() of transformers: the file has the returned tokens, each once, or there is no file."""

import threading
import unittest
import warnings
from functools import partial
from unittest import mock

import numpy as np
import tiny_models
import torch
from recording_tests import Bare, Fixed, RecordTest, chosen_by_hand
from transformers import CompileConfig, DynamicCache

import evenkeel as ek
import evenkeel.torch

ENDS = [3, 7, 11, 12, 22, 40, 50]
"""Enough ids that rows of a random model end, at different times."""


def generating(model_type="qwen3_moe", **sizes):
    """A model, prompts of 3 and 5 tokens (padded on the left) and of 5, and options that end rows early."""
    model, _ = tiny_models.make(model_type, **sizes)
    torch.manual_seed(1)
    prompts = torch.randint(1, 64, (4, 5))
    mask = torch.ones_like(prompts)
    prompts[0, :2] = mask[0, :2] = 0
    return model, {"input_ids": prompts, "attention_mask": mask, "max_new_tokens": 12, "eos_token_id": ENDS}


class WhatGenerateRuns(RecordTest):
    """Hooks on the experts in a plain forward of each returned sequence give what the file must contain."""

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
        """The tokens that generate() must run: all but padding, the token that ends a sequence, and later ones."""
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
        same[first + 3 : first + len(runs[2])] = False  # generate() counts other positions after such padding
        np.testing.assert_array_equal(of_generate["topk_ids"][same], alone["topk_ids"][same])

    def test_drafts_that_are_rejected_are_left_out(self):
        model, options = generating()
        worse, _ = tiny_models.make("qwen3_moe", num_hidden_layers=1, layer_types=["full_attention"])
        twin, _ = tiny_models.make("qwen3_moe")  # all its drafts are accepted
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
        message = "a forward goes on from a cache, so the trace will not say where sequences begin"
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
            with self.subTest(message):
                self.assert_refused(ek.Unsupported, message, model, run=call)

    def test_a_loop_that_is_not_of_transformers_is_refused(self):
        class Loop(Fixed):
            def generate(self, *ids):
                return self(*ids)

        model = Loop(Bare())
        message = "generate() of Loop is not that of transformers and does not say which sequences have ended"
        self.assert_refused(ek.Unsupported, message, model, run=lambda: model.generate(torch.tensor([[0]])))

    def test_a_loop_that_returns_other_tokens_than_it_ran_is_refused(self):
        model, options = generating()

        def sample(model, input_ids, **given):
            return type(model)._sample(model, input_ids, **given)

        def guided(model, input_ids, logits_processor, **given):
            def twice(ids, scores):
                if ids.shape[1] > 5:  # past the prompt
                    model(ids[:, -1:], use_cache=False)
                return scores

            return sample(model, input_ids, logits_processor=twice, **given)

        for message, custom in (
            ("runs other tokens than it returns; record", lambda *a, **given: sample(*a, **given).flip(1)),
            ("runs 4 rows and returns 3 sequences", lambda *a, **given: sample(*a, **given)[:3]),
            ("returns a list, or never asks", lambda *a, **given: sample(*a, **given).tolist()),
            ("runs several forwards for one token", guided),
        ):
            with self.subTest(message):
                run = lambda custom=custom: model.generate(**options, custom_generate=custom)  # noqa: E731
                self.assert_refused(ek.Unsupported, message, model, run=run)


class Waiting(Fixed):
    """A forward that waits until the test lets it continue."""

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
        self.enterContext(mock.patch.object(threading, "excepthook", self.died.append))

    def test_a_block_that_ends_while_generate_runs_leaves_no_file(self):
        model, options = generating()
        model(options["input_ids"])
        for tokens in (0, 3, 8):  # the block ends after this many forwards
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
            (model.model, "runs the recorded Qwen3MoeModel; record the Qwen3MoeForCausalLM", bound),
            (model, "is not followed; call model.generate()", bound),
            (model, "is not followed; call model.generate()", lambda **given: type(model).generate(model, **given)),
        ):
            for more in ({}, {"use_cache": False}, {"num_beams": 2}, {"prefill_chunk_size": 2}):
                with self.subTest(message, **more):
                    self.assert_refused(ek.Unsupported, message, module, run=partial(call, **options | more))

    def test_a_refusal_in_a_thread_leaves_no_file(self):
        model, options = generating()
        thread = threading.Thread(target=model.generate, kwargs=options)  # bound before record() replaces the method

        def run():
            model(options["input_ids"])
            thread.start()
            thread.join()

        self.assert_refused(ek.Unsupported, "is not followed", model, run=run)

    def test_a_generate_that_failed_is_no_forward(self):
        model, options = generating()

        def run():
            with self.assertRaises(ZeroDivisionError):
                model.generate(**options, stopping_criteria=[lambda ids, scores: 1 // 0])

        self.assert_refused(ek.InvalidArgument, "ran no forward while it was recorded", model, run=run)

    def test_the_base_model_of_a_wrapper_is_to_be_recorded(self):
        class Wrap(torch.nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base = base

            def generate(self, **options):
                return self.base.generate(**options)

        model, options = generating()
        wrap = Wrap(model)
        message = "if a wrapper's generate() calls the base model, record the base model"
        self.assert_refused(ek.Unsupported, message, wrap, run=lambda: wrap.generate(**options))
        with evenkeel.torch.record(model, self.path):
            wrap.generate(**options)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    unittest.main()
