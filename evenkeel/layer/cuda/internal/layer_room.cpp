#include "evenkeel/layer/cuda/internal/layer_room.h"

#include "evenkeel/base/carver.h"
#include "evenkeel/exchange/cuda/chunk_sizes.h"

namespace evenkeel::cuda {

namespace {

using Carver = AlignedCarver<256>;

StateRoom state_room(Carver& carver, const RoomShape& shape) {
  const RouteShape& route = shape.route;
  const int segments = most_segments(shape.num_slots, route.num_ranks);
  const auto integers = [&carver](std::int64_t count) { return carver.take<std::int32_t>(count); };
  StateRoom room;
  room.before = integers(std::int64_t{route.num_slices + 1} * route.num_experts);
  room.rank_in_slice = carver.take<std::uint16_t>(route.most_assignments);
  room.counts = integers(std::int64_t{route.most_chunks} * route.num_ranks * route.num_experts);
  StepView& step = room.step;
  step.counts = room.counts;
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
  step.transfer_place = integers(segments);
  step.group_of = integers(route.num_experts);
  return room;
}

ChunkView chunk_view(Carver& carver, const RoomShape& shape) {
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
  view.piece_rank = integers(segments + route.num_experts);
  view.piece_count = integers(segments + route.num_experts);
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

LayerRoom lay_out(const RoomShape& shape, std::byte* base) {
  Carver carver(base);
  const RouteShape& route = shape.route;
  LayerRoom room;
  room.homes =
      carver.take<std::int32_t>(placement_integers({route.num_experts, route.num_ranks, shape.num_slots}));
  room.planner = carver.take<std::int32_t>(shape.planner_integers);
  room.block_counts = carver.take<std::int32_t>(std::int64_t{route.most_chunks} * route.num_experts);
  for (int state = 0; state < shape.states; ++state) room.states.push_back(state_room(carver, shape));
  room.chunk = chunk_view(carver, shape);
  for (int turn = 0; turn < 2; ++turn) {
    room.outbox[static_cast<std::size_t>(turn)] = outbox_view(carver, route);
    room.outboxes[static_cast<std::size_t>(turn)] = carver.take<OutboxView>(route.num_ranks);
  }
  room.views = carver.take<PeerView>(route.num_ranks);
  room.tensors = carver.take<StepTensors>(1);
  room.shown_weights = carver.take<ExpertTensors>(route.num_experts);
  room.group_weights = carver.take<DeviceExpertWeights>(route.num_groups());
  room.places = carver.take<std::uint16_t>(route.places * shape.layout.block());
  const std::int64_t numbers = std::int64_t{route.most_positions} * shape.hidden;
  room.rows = carver.take<std::uint16_t>(numbers);
  room.exchanged = carver.take<std::uint16_t>(numbers);
  room.workspace = carver.take<std::byte>(shape.workspace_bytes);
  if (shape.with_backward) {
    room.group_gradients = carver.take<DeviceExpertGradients>(route.num_groups());
    room.native_gradients = carver.take<ExpertTensors>(route.num_natives);
    room.foreign_gradients = carver.take<float>(shape.foreign_gradients());
    room.row_gradients = carver.take<float>(numbers);
    room.weights = carver.take<float>(route.most_positions);
    room.weight_gradients = carver.take<float>(route.most_positions);
  }
  room.bytes = carver.used();
  return room;
}

}  // namespace evenkeel::cuda
