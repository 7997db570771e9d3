"""Balances Megatron-Core's MoE layer: with our exchange in place of Megatron's dispatcher, or with that dispatcher.

usage: torchrun --nproc-per-node 2 examples/megatron_layer.py

Written for Megatron-Core 0.16.1. In a layer's spec, replace `MoELayer` by `BalancedMoELayer` or `SlotsMoELayer`.
Experts are `SequentialMLP` with an expert tensor parallel size of 1.
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_layer import MoELayer, get_default_pg_collection
from megatron.core.transformer.spec_utils import ModuleSpec, build_module
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.func import functional_call

from evenkeel.torch import ExpertParallel, ExpertSlots


class BalancedMoELayer(MoELayer):
    """Uses Megatron's router, shared experts, aux losses and recomputation, with our dispatch and combine."""

    balance = ExpertParallel

    def __init__(self, config, submodules=None, layer_number=None, pg_collection=None, **options):
        super().__init__(config, submodules, layer_number, pg_collection)
        self.refuse_what_is_lost()
        self.balanced = self.balance(config.num_moe_experts, self.ep_group, name=str(layer_number), **options)

    def refuse_what_is_lost(self):
        config = self.config
        for wrong, what in (
            (type(self.experts) is not SequentialMLP, "experts other than SequentialMLP"),
            (self.experts.tp_group.size() > 1, "expert_tensor_parallel_size above 1"),
            (config.moe_shared_expert_overlap, "moe_shared_expert_overlap"),
            (config.moe_latent_size, "moe_latent_size"),
            (config.moe_apply_probs_on_input, "moe_apply_probs_on_input"),
            (config.gradient_accumulation_fusion, "gradient_accumulation_fusion"),
            (config.fp8 or config.fp4, "fp8 and fp4"),
            (config.cuda_graph_impl != "none", "CUDA graphs"),
        ):
            if wrong:
                raise ValueError(f"{type(self).__name__} does not have {what}")

    def preprocess(self, hidden_states, probs, routing_map):
        self.shape, self.routing_map = hidden_states.shape, routing_map
        return hidden_states.flatten(0, -2), probs

    def dispatch(self, hidden_states, probs):
        return hidden_states, probs

    def routed_experts_compute(self, hidden_states, probs):
        index, weights = self.top_k(probs)
        output = self.balanced(hidden_states, index, weights, self.run_experts, self.expert_weights())
        return output.type_as(hidden_states), None

    def top_k(self, probs):
        """Ids and weights of each token's experts. No token has an expert twice, since they come from a boolean map."""
        chosen, index = self.routing_map.int().topk(self.config.moe_router_topk)
        weights = probs.gather(1, index)
        return index.masked_fill(chosen == 0, -1), weights  # -1: a dropped assignment

    def combine(self, output):
        return output

    def postprocess(self, output, shared_expert_output):
        output = output.view(self.shape)
        return output if shared_expert_output is None else output + shared_expert_output

    def expert_weights(self):
        """A copy of this rank's weights for this step, stacked by expert."""
        experts = self.experts.local_experts
        return {
            name: torch.stack([expert.get_parameter(name) for expert in experts])
            for name, _ in experts[0].named_parameters()
        }

    def run_experts(self, rows, slots, weights):
        """Each row's output, without its top-k weight. Runs one expert's module with each slot's weights in turn."""
        expert = self.experts.local_experts[0]
        outputs = torch.empty_like(rows)
        for slot in slots.unique().tolist():
            at = (slots == slot).nonzero()[:, 0]
            mine = {name: weight[slot] for name, weight in weights.items()}
            made, _ = functional_call(expert, mine, (rows[at], rows.new_ones(len(at))))
            outputs = outputs.index_copy(0, at, made)
        return outputs


class SlotsMoELayer(BalancedMoELayer):
    """BalancedMoELayer with any token dispatcher of Megatron; it treats each rank's borrow slots as further experts."""

    balance = ExpertSlots

    def __init__(self, config, submodules=None, layer_number=None, pg_collection=None, **options):
        super().__init__(config, submodules, layer_number, pg_collection, **options)
        layer, groups = self.balanced, pg_collection or get_default_pg_collection()
        places = range(self.ep_group.rank() * layer.places_here, (self.ep_group.rank() + 1) * layer.places_here)
        with_slots = copy.copy(config)
        with_slots.num_moe_experts = layer.num_places
        self.over_places = type(self.token_dispatcher)(layer.places_here, list(places), with_slots, groups)

    def refuse_what_is_lost(self):
        super().refuse_what_is_lost()
        for option in ("moe_pad_expert_input_to_capacity", "moe_router_padding_for_quantization"):
            if getattr(self.config, option):
                raise ValueError(f"SlotsMoELayer does not have {option}")

    def routed_experts_compute(self, hidden_states, probs):
        def stock(*_):  # for steps in which nothing moves
            return self.through(self.token_dispatcher, hidden_states, self.routing_map, probs, self.experts)

        index, weights = self.top_k(probs)
        output = self.balanced(
            hidden_states, index, weights, self.run_experts, self.expert_weights(), self.carry, stock
        )
        return output.type_as(hidden_states), None

    def carry(self, hidden_states, places, weights, run):
        """Runs Megatron's dispatcher on a routing map with a column per place (an expert or a slot). A last column for
        dropped assignments is cut off before."""
        column = places.masked_fill(places < 0, self.balanced.num_places)
        shape = (len(places), self.balanced.num_places + 1)
        routing_map = torch.zeros(shape, dtype=torch.bool, device=places.device).scatter(1, column, True)
        probs = weights.new_zeros(shape).scatter(1, column, weights)

        def experts(rows, counts, probs):
            return run.sorted(self.run_sorted, rows, counts, probs), None

        return self.through(self.over_places, hidden_states, routing_map[:, :-1], probs[:, :-1], experts)

    def through(self, dispatcher, hidden_states, routing_map, probs, experts):
        """The steps of Megatron's `MoELayer` between its router and its shared experts: dispatch, experts, combine."""
        hidden_states = hidden_states.view(self.shape)
        hidden_states, probs = dispatcher.dispatch_preprocess(
            hidden_states, routing_map.contiguous(), probs.contiguous()
        )
        hidden_states, probs = dispatcher.token_dispatch(hidden_states, probs)
        output, _ = experts(*dispatcher.dispatch_postprocess(hidden_states, probs))
        output = dispatcher.token_combine(dispatcher.combine_preprocess(output))
        return dispatcher.combine_postprocess(output).flatten(0, -2)

    def run_sorted(self, rows, counts, weights, probs):
        """The output of rows sorted by slot. Megatron's expert modules already multiply it by `probs`."""
        expert, outputs = self.experts.local_experts[0], []
        pieces = (tensor.split(counts.tolist()) for tensor in (rows, probs))
        for slot, piece in enumerate(zip(*pieces, strict=True)):
            mine = {name: weight[slot] for name, weight in weights.items()}
            outputs.append(functional_call(expert, mine, piece)[0])
        return torch.cat(outputs)


def make_layer(config, layer_class, **options):
    """Builds the layer from a spec, as Megatron does."""
    spec = get_moe_module_spec(use_te=False, num_experts=config.num_moe_experts, moe_grouped_gemm=False)
    spec = ModuleSpec(module=layer_class, submodules=spec.submodules, params=options)
    return build_module(spec, config=config, layer_number=1)


def make_config(ranks, **options):
    shape = {
        "num_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_moe_experts": 8,
        "moe_ffn_hidden_size": 16,
        "moe_router_topk": 2,
        "moe_token_dispatcher_type": "allgather",  # Megatron's dispatcher that works without CUDA
        "expert_model_parallel_size": ranks,
        "add_bias_linear": False,
        "gated_linear_unit": True,
        "activation_func": F.silu,
        "use_cpu_initialization": not torch.cuda.is_available(),
    }
    return TransformerConfig(**shape | options)


def without_cuda():
    """Makes Megatron-Core 0.16.1 run on a CPU: it asks CUDA for the current device, and uses a name that only
    Transformer Engine defines."""
    if not torch.cuda.is_available():
        torch.cuda.current_device = lambda: "cpu"
        moe_utils.te_general_gemm = None


def main():
    dist.init_process_group("gloo" if not torch.cuda.is_available() else "nccl")
    without_cuda()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parallel_state.initialize_model_parallel(expert_model_parallel_size=ranks)
    torch.manual_seed(0)
    layer = make_layer(make_config(ranks), BalancedMoELayer, min_segment=16, imbalance_threshold=1.05)

    hidden = torch.randn(64, 2, 32, generator=torch.Generator().manual_seed(rank))  # [sequence, batch, hidden]
    output, _ = layer(hidden)
    output.square().mean().backward()
    if rank == 0:
        print(f"assignments by rank {layer.balanced.last['rank_loads']}, at home {layer.balanced.last['home_loads']}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
