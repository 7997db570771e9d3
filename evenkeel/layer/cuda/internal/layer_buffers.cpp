#include "evenkeel/layer/cuda/layer_buffers.h"

#include "evenkeel/base/carver.h"
#include "evenkeel/exchange/cuda/chunk_sizes.h"

namespace evenkeel::cuda {

namespace {

using Carver = AlignedCarver<256>;

StateBuffers state_buffers(Carver& carver, const BufferShape& shape) {
  const RouteShape& route = shape.route;
  const int segments = most_segments(shape.num_slots, route.num_ranks);
  const auto integers = [&carver](std::int64_t count) { return carver.take<std::int32_t>(count); };
  StateBuffers buffers;
  buffers.before = integers(std::int64_t{route.num_slices + 1} * route.num_experts);
  buffers.rank_in_slice = carver.take<std::uint16_t>(route.most_assignments);
  buffers.counts = integers(std::int64_t{route.most_chunks} * route.num_ranks * route.num_experts);
  StepView& step = buffers.step;
  step.counts = buffers.counts;
  step.plan = {integers(route.num_experts + 1),
               integers(segments),
               integers(segments),
               integers(segments),
               integers(segments),
               integers(segments),
               integers(1),
               integers(route.num_ranks),
               integers(1)};
  step.num_chunks = integers(1);
  step.borrowed_expert = integers(route.most_borrowed());
  step.borrowed_from = integers(route.most_borrowed());
  step.borrowed_index = integers(segments);
  step.group_of = integers(route.num_experts);
  return buffers;
}

ChunkView chunk_view(Carver& carver, const BufferShape& shape) {
  const RouteShape& route = shape.route;
  const int segments = most_segments(shape.num_slots, route.num_ranks);
  const std::int64_t table = std::int64_t{route.num_ranks} * route.num_experts;
  const std::int64_t assignments = route.most_assignments;
  const auto integers = [&carver](std::int64_t count) { return carver.take<std::int32_t>(count); };
  ChunkView view;
  view.counts = integers(table);
  view.quota = integers(segments);
  view.sent = integers(table);
  view.arrived = integers(table);
  view.piece_rank = integers(most_pieces(segments, route.num_experts));
  view.piece_count = integers(most_pieces(segments, route.num_experts));
  view.pieces = integers(route.num_experts);
  view.group_begin = integers(route.num_groups() + 1);
  view.entry = integers(assignments);
  view.destination = integers(assignments);
  view.firsts_before = integers(assignments + 1);
  view.tile_firsts = integers(most_tiles(assignments));
  view.input_row = integers(route.most_positions);
  view.output_row = integers(route.most_positions);
  return view;
}

OutboxView outbox_view(Carver& carver, const RouteShape& route) {
  const auto integers = [&carver](std::int64_t count) { return carver.take<std::int32_t>(count); };
  OutboxView view;
  view.begin = integers(route.num_ranks + 1);
  view.rows = integers(route.num_ranks);
  view.row = integers(route.most_assignments);
  view.token = integers(route.most_assignments);
  view.assignment = integers(route.most_assignments);
  view.in_row = integers(route.num_ranks + 1);
  view.in_position = integers(route.num_ranks + 1);
  return view;
}

}  // namespace

LayerBuffers lay_out(const BufferShape& shape, std::byte* base) {
  Carver carver(base);
  const RouteShape& route = shape.route;
  LayerBuffers buffers;
  buffers.homes =
      carver.take<std::int32_t>(placement_integers({route.num_experts, route.num_ranks, shape.num_slots}));
  buffers.planner = carver.take<std::int32_t>(shape.planner_integers);
  buffers.block_counts = carver.take<std::int32_t>(std::int64_t{route.most_chunks} * route.num_experts);
  for (int state = 0; state < shape.states; ++state) buffers.states.push_back(state_buffers(carver, shape));
  buffers.chunk = chunk_view(carver, shape);
  for (int turn = 0; turn < 2; ++turn) {
    buffers.outbox[static_cast<std::size_t>(turn)] = outbox_view(carver, route);
    buffers.outboxes[static_cast<std::size_t>(turn)] = carver.take<OutboxView>(route.num_ranks);
  }
  buffers.views = carver.take<PeerView>(route.num_ranks);
  buffers.tensors = carver.take<StepTensors>(1);
  buffers.published_weights = carver.take<ExpertTensors>(route.num_experts);
  buffers.group_weights = carver.take<ExpertWeights>(route.num_groups());
  buffers.slot_weights = carver.take<std::uint16_t>(route.borrow_slots * shape.layout.block());
  const std::int64_t numbers = std::int64_t{route.most_positions} * shape.hidden;
  buffers.rows = carver.take<std::uint16_t>(numbers);
  buffers.exchanged = carver.take<std::uint16_t>(numbers);
  buffers.workspace = carver.take<std::byte>(shape.workspace_bytes);
  if (shape.with_backward) {
    buffers.group_gradients = carver.take<DeviceExpertGradients>(route.num_groups());
    buffers.native_gradients = carver.take<ExpertTensors>(route.num_natives);
    buffers.foreign_gradients = carver.take<float>(shape.foreign_gradients());
    buffers.row_gradients = carver.take<float>(numbers);
    buffers.weights = carver.take<float>(route.most_positions);
    buffers.weight_gradients = carver.take<float>(route.most_positions);
  }
  buffers.bytes = carver.used();
  return buffers;
}

}  // namespace evenkeel::cuda
