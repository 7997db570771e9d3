#include "evenkeel/layer/internal/experts_backward.h"

#include <algorithm>

namespace evenkeel::internal {

namespace {

ExpertBatch batch_of(LayerBody& layer, const Dispatched& dispatched) {
  return {layer.groups.groups(), dispatched.input_row(), dispatched.output_row()};
}

// Owners add to the caller's gradients, everyone else to what will be sent to the owner.
void attach_gradients(LayerBody& layer) {
  const auto away = layer.transfer.away();
  for (std::size_t g = 0; g < layer.groups.groups().size(); ++g) {
    const ExpertId expert = layer.groups.experts()[g];
    const auto found = std::ranges::find(away, expert, &WeightTransfer::Away::expert);
    layer.groups.groups()[g].gradients =
        gradients_of(found == away.end() ? layer.owned_gradients[expert.offset()] : found->parts);
  }
}

}  // namespace

void attach_owned_gradients(LayerBody& layer, const MoeGradients& gradients) {
  for (ExpertId expert : layer.natives_here())
    if (layer.placement.owner(expert) == layer.comm.rank())
      layer.owned_gradients[expert.offset()] =
          parts_of(gradients.experts[layer.natives.index(expert)], layer.shape.expert);
}

TokenRows token_rows(const LayerBody& layer, const SavedStep& step, std::int64_t first, std::int64_t tokens,
                     const BackwardTensors& tensors) {
  const TopK part = step.top_k.part(first, tokens);
  const MoeGradients& gradients = tensors.gradients;
  return {part, layer.row(step.hidden, first), layer.row(tensors.grad_output, first),
          layer.row(gradients.hidden, first),
          gradients.router_weights.subspan(static_cast<std::size_t>(first * part.k), part.weights.size())};
}

void run_experts_backward(LayerBody& layer, Pass pass, const GradientFlow& flow) {
  if (pass == Pass::recompute) layer.clock.statistics().recomputed_assignments += layer.groups.positions();
  if (layer.groups.groups().empty()) return;
  layer.clock.enter(Phase::compute);
  const Workspaces& all = layer.workspace;
  const Buffer workspace =
      layer.arena.allocate(pass == Pass::recompute ? all.recompute : all.backward, "products");
  attach_gradients(layer);
  layer.ffn->backward(batch_of(layer, flow.dispatched), flow.dispatched.rows(flow.tokens.hidden),
                      flow.dispatched.rows(flow.tokens.grad_output, flow.incoming.rows),
                      flow.incoming.router.values, flow.computed.sums, flow.incoming.router.gradients,
                      workspace.bytes());
}

void add_gate_up_gradients(LayerBody& layer, const GradientFlow& flow) {
  layer.groups.keep_without_gate_up();
  if (layer.groups.groups().empty()) return;
  layer.clock.enter(Phase::compute);
  const Buffer workspace = layer.arena.allocate(layer.workspace.backward, "products");
  attach_gradients(layer);
  layer.ffn->add_gate_up_gradients(batch_of(layer, flow.dispatched), flow.dispatched.rows(flow.tokens.hidden),
                                   workspace.bytes());
}

}  // namespace evenkeel::internal
