// Forward and backward as lists of products and sums, for any machine that can run them: a GPU's stream, or
// its emulation on the host in the tests. A machine has
//
//   void make_schedule(const TileSchedule&)
//   template <class Product> void run(const Product&, const TileSchedule&, int counter)
//   void run(const RowWeightGradient&), run(const BiasGradient&), run(const InputGradient&)
#pragma once

#include <cstddef>

#include "evenkeel/base/carver.h"
#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/compute/cuda/internal/products.h"
#include "evenkeel/compute/cuda/internal/row_sums.h"
#include "evenkeel/compute/cuda/internal/tensor_map.h"

namespace evenkeel::cuda {

// Cuts a workspace into pieces, aligned even if the workspace is not: tensor maps need 128 bytes.
class WorkspaceCarver : public AlignedCarver<256> {
 public:
  explicit WorkspaceCarver(std::byte* base) : AlignedCarver(base == nullptr ? nullptr : aligned(base)) {}
  // Bytes that a workspace with any start address needs for the pieces.
  std::int64_t needed() const { return used() + kAlignment; }

 private:
  static constexpr std::int64_t kAlignment = 256;
  static std::byte* aligned(std::byte* base) {
    const auto beyond = reinterpret_cast<std::uintptr_t>(base) % kAlignment;
    return beyond == 0 ? base : base + (kAlignment - static_cast<std::int64_t>(beyond));
  }
};

struct ForwardPieces {
  ForwardPieces(WorkspaceCarver& carver, const ExpertShape& shape, int num_groups, std::int64_t max_positions)
      : maps(carver.take<TensorMap>(2 * std::int64_t{num_groups})),
        schedule(carver.take<std::int32_t>(schedule_ints(num_groups))),
        hidden(carver.take<bf16>(max_positions * shape.intermediate)) {}

  TensorMap* maps;  // of gate_up by group, then of down by group
  std::int32_t* schedule;
  bf16* hidden;
};

struct BackwardPieces {
  BackwardPieces(WorkspaceCarver& carver, const ExpertShape& shape, int num_groups,
                 std::int64_t max_positions, const DeviceBackward& call, int dot_columns)
      : dot_slots(static_cast<int>((shape.intermediate + dot_columns - 1) / dot_columns)),
        maps(carver.take<TensorMap>(2 * std::int64_t{num_groups})),
        schedule(carver.take<std::int32_t>(schedule_ints(num_groups))),
        grad_pre(carver.take<bf16>(max_positions * shape.gate_up_rows())),
        weighted_hidden(carver.take<bf16>(max_positions * shape.intermediate)),
        dots(carver.take<float>(dot_slots * max_positions)),
        grad_position(carver.take<float>(call.grad_position == nullptr ? max_positions * shape.hidden : 0)),
        lists(carver.take<std::int32_t>(
            call.grad_input == nullptr ? 0 : InputGradient::ints(call.input_rows, max_positions))) {}

  int dot_slots;
  TensorMap* maps;
  std::int32_t* schedule;
  bf16* grad_pre;
  bf16* weighted_hidden;
  float* dots;
  float* grad_position;
  std::int32_t* lists;
};

template <Activation kActivation>
RowProduct<HiddenEpilogue<kActivation>, Major::k, Order::indexed> hidden_product(const ExpertShape& shape,
                                                                                 const DeviceGroups& groups,
                                                                                 const void* input,
                                                                                 bf16* hidden, bf16* saved) {
  return {.a = {static_cast<const bf16*>(input), shape.hidden, groups.input_row},
          .max_positions = groups.max_positions,
          .weights = groups.weights,
          .matrix = WeightMatrix::gate_up,
          .depth = shape.hidden,
          .columns = shape.intermediate,
          .epilogue = {groups.weights, shape.biases, shape.intermediate, hidden, saved}};
}

template <Activation kActivation, class Machine>
void run_forward(Machine& machine, const ExpertShape& shape, const DeviceGroups& groups, const void* input,
                 void* output, std::byte* saved, const ForwardPieces& pieces) {
  const TileSchedule schedule = schedule_in(pieces.schedule, groups.num_groups, groups.begin);
  machine.make_schedule(schedule);
  machine.run(
      hidden_product<kActivation>(shape, groups, input, pieces.hidden, reinterpret_cast<bf16*>(saved)),
      schedule, 0);
  machine.run(
      RowProduct<OutputEpilogue, Major::k, Order::by_position>{
          .a = {pieces.hidden, shape.intermediate, nullptr},
          .max_positions = groups.max_positions,
          .weights = groups.weights,
          .matrix = WeightMatrix::down,
          .depth = shape.intermediate,
          .columns = shape.hidden,
          .epilogue = {groups.weights, shape.biases, shape.hidden, groups.output_row,
                       static_cast<bf16*>(output)}},
      schedule, 1);
}

namespace internal {

// Computes grad_h and from it everything that the products below need.
template <Activation kActivation, class Machine>
void differentiate_hidden(Machine& machine, const ExpertShape& shape, const DeviceGroups& groups,
                          const DeviceBackward& call, const BackwardPieces& pieces,
                          const TileSchedule& schedule) {
  const bf16* saved = reinterpret_cast<const bf16*>(call.saved);
  if (saved == nullptr) {
    machine.run(hidden_product<kActivation>(shape, groups, call.input, nullptr, pieces.grad_pre), schedule,
                0);
    saved = pieces.grad_pre;
  }
  machine.run(
      RowProduct<HiddenGradientEpilogue<kActivation>, Major::outer, Order::indexed>{
          .a = {static_cast<const bf16*>(call.grad_output), shape.hidden, groups.input_row},
          .max_positions = groups.max_positions,
          .weights = groups.weights,
          .matrix = WeightMatrix::down,
          .depth = shape.hidden,
          .columns = shape.intermediate,
          .epilogue = {shape.intermediate, groups.output_row, call.weight, saved, pieces.grad_pre,
                       pieces.weighted_hidden, pieces.dots, groups.max_positions}},
      schedule, 1);
}

template <class Machine>
void add_weight_gradients(Machine& machine, const ExpertShape& shape, const DeviceGroups& groups,
                          const DeviceBackward& call, const BackwardPieces& pieces,
                          const TileSchedule& schedule, DataType type) {
  const Rows input{static_cast<const bf16*>(call.input), shape.hidden, groups.input_row};
  const Rows grad_output{static_cast<const bf16*>(call.grad_output), shape.hidden, groups.input_row};
  const Rows grad_pre{pieces.grad_pre, shape.gate_up_rows(), nullptr};
  const Rows weighted_hidden{pieces.weighted_hidden, shape.intermediate, nullptr};
  const auto add_matrices = [&]<class T>() {
    machine.run(
        WeightProduct<T, Order::indexed, Order::by_position>{
            grad_output, weighted_hidden, groups.max_positions, {groups.gradients, true, shape.intermediate}},
        schedule, 2);
    machine.run(
        WeightProduct<T, Order::by_position, Order::indexed>{
            grad_pre, input, groups.max_positions, {groups.gradients, false, shape.hidden}},
        schedule, 3);
  };
  if (type == DataType::f32)
    add_matrices.template operator()<float>();
  else
    add_matrices.template operator()<bf16>();
  if (!shape.biases) return;
  // The dot products have already been summed, so their space is free.
  const std::int64_t space = pieces.dot_slots * groups.max_positions;
  const auto run = [&](const Rows& rows, const float* weight, bool of_down) {
    machine.run(BiasGradient{groups.begin, groups.num_groups, rows, groups.output_row, weight,
                             groups.gradients, of_down, type, pieces.dots,
                             BiasGradient::shares_in(space, groups.num_groups, rows.width)});
  };
  run(grad_output, call.weight, true);
  run(grad_pre, nullptr, false);
}

template <class Machine>
void differentiate_input(Machine& machine, const ExpertShape& shape, const DeviceGroups& groups,
                         const DeviceBackward& call, const BackwardPieces& pieces,
                         const TileSchedule& schedule) {
  float* const by_position = call.grad_position == nullptr ? pieces.grad_position : call.grad_position;
  machine.run(
      RowProduct<InputGradientEpilogue, Major::outer, Order::by_position>{
          .a = {pieces.grad_pre, shape.gate_up_rows(), nullptr},
          .max_positions = groups.max_positions,
          .weights = groups.weights,
          .matrix = WeightMatrix::gate_up,
          .depth = shape.gate_up_rows(),
          .columns = shape.hidden,
          .epilogue = {shape.hidden, by_position}},
      schedule, 4);
  if (call.grad_input == nullptr) return;
  machine.run(InputGradient{groups.begin, groups.num_groups, groups.input_row, call.input_rows, shape.hidden,
                            groups.max_positions, by_position, call.grad_input, pieces.lists,
                            pieces.lists + call.input_rows + 1, pieces.lists + 2 * call.input_rows + 1});
}

}  // namespace internal

template <Activation kActivation, class Machine>
void run_backward(Machine& machine, const ExpertShape& shape, const DeviceGroups& groups,
                  const DeviceBackward& call, const BackwardPieces& pieces, DataType gradient_type) {
  const TileSchedule schedule = schedule_in(pieces.schedule, groups.num_groups, groups.begin);
  machine.make_schedule(schedule);
  internal::differentiate_hidden<kActivation>(machine, shape, groups, call, pieces, schedule);
  machine.run(RowWeightGradient{shape.biases ? groups.weights : nullptr,
                                groups.begin,
                                groups.num_groups,
                                {static_cast<const bf16*>(call.grad_output), shape.hidden, groups.input_row},
                                groups.output_row,
                                pieces.dots,
                                pieces.dot_slots,
                                groups.max_positions,
                                call.grad_weight});
  internal::add_weight_gradients(machine, shape, groups, call, pieces, schedule, gradient_type);
  internal::differentiate_input(machine, shape, groups, call, pieces, schedule);
}

// Calls f.operator()<activation>().
template <class F>
void with_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::swiglu:
      return f.template operator()<Activation::swiglu>();
    case Activation::clamped_swiglu:
      return f.template operator()<Activation::clamped_swiglu>();
    case Activation::gelu:
      return f.template operator()<Activation::gelu>();
  }
}

}  // namespace evenkeel::cuda
