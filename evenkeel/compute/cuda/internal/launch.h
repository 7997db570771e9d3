// Host functions that launch the kernels. Each call launches and returns at once.
#pragma once

#include <cuda_runtime_api.h>

#include "evenkeel/compute/cuda/internal/generic_kernel.h"
#include "evenkeel/compute/cuda/internal/hopper_kernel.h"
#include "evenkeel/compute/cuda/internal/passes.h"

namespace evenkeel::cuda {

// Device properties that launches need.
struct Chip {
  int multiprocessors = 0;
  int capability = 0;  // 90 for compute capability 9.0
};

void launch_schedule(const TileSchedule& schedule, cudaStream_t stream);
void launch(const RowWeightGradient& sum, cudaStream_t stream);
void launch(const BiasGradient& sum, cudaStream_t stream);
void launch(const InputGradient& sum, cudaStream_t stream);

namespace hopper {

// Enables the kernels' shared memory size on the current device.
void prepare();
// Makes one map per group for its gate_up, maps[0..G), and one for its down, maps[G..2 G).
void launch_maps(int num_groups, const ExpertWeights* weights, const TensorMap& gate_up,
                 const TensorMap& down, TensorMap* maps, cudaStream_t stream);
template <class Product>
void launch(const Call<Product>& call, const Chip& chip, cudaStream_t stream);

}  // namespace hopper

namespace generic {

void prepare();
template <class Product>
void launch(const Call<Product>& call, const Chip& chip, cudaStream_t stream);

}  // namespace generic

// Every product type that passes.h uses.
#define EVENKEEL_FOR_EACH_PRODUCT(DO)                                                              \
  DO(RowProduct<HiddenEpilogue<Activation::swiglu>, Major::k, Order::indexed>)                     \
  DO(RowProduct<HiddenEpilogue<Activation::clamped_swiglu>, Major::k, Order::indexed>)             \
  DO(RowProduct<HiddenEpilogue<Activation::gelu>, Major::k, Order::indexed>)                       \
  DO(RowProduct<OutputEpilogue, Major::k, Order::by_position>)                                     \
  DO(RowProduct<HiddenGradientEpilogue<Activation::swiglu>, Major::outer, Order::indexed>)         \
  DO(RowProduct<HiddenGradientEpilogue<Activation::clamped_swiglu>, Major::outer, Order::indexed>) \
  DO(RowProduct<HiddenGradientEpilogue<Activation::gelu>, Major::outer, Order::indexed>)           \
  DO(RowProduct<InputGradientEpilogue, Major::outer, Order::by_position>)                          \
  DO(WeightProduct<float, Order::indexed, Order::by_position>)                                     \
  DO(WeightProduct<float, Order::by_position, Order::indexed>)                                     \
  DO(WeightProduct<bf16, Order::indexed, Order::by_position>)                                      \
  DO(WeightProduct<bf16, Order::by_position, Order::indexed>)

}  // namespace evenkeel::cuda
