// Everything that a layer keeps on a device, in one arena buffer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/exchange/cuda/device_exchange.h"

namespace evenkeel::cuda {

// The numbers that determine the buffer sizes.
struct BufferShape {
  RouteShape route;
  int num_slots = 0;
  int num_copies = 0;  // native experts that another rank owns
  int states = 1;
  bool with_backward = true;
  std::int64_t hidden = 0;
  std::int64_t planner_integers = 0;
  std::int64_t workspace_bytes = 0;  // of the experts' products
  ExpertLayout layout;

  // Number of elements in the gradients of experts that other ranks own.
  std::int64_t foreign_gradients() const { return (route.most_borrowed() + num_copies) * layout.block(); }
};

// One step's counts and decisions, kept until its backward pass.
struct StateBuffers {
  std::int32_t* before = nullptr;
  std::uint16_t* rank_in_slice = nullptr;
  std::int32_t* counts = nullptr;
  StepView step;
};

struct LayerBuffers {
  std::int32_t* homes = nullptr;  // the tables of a PlacementView
  std::int32_t* planner = nullptr;
  std::int32_t* block_counts = nullptr;
  std::vector<StateBuffers> states;

  ChunkView chunk;
  // Used alternately: other ranks read one chunk's outbox while the next chunk is dealt.
  std::array<OutboxView, 2> outbox;
  std::array<OutboxView*, 2> outboxes{};  // of all ranks
  PeerView* views = nullptr;
  StepTensors* tensors = nullptr;

  ExpertTensors* published_weights = nullptr;  // [E]
  ExpertWeights* group_weights = nullptr;      // [groups]
  DeviceExpertGradients* group_gradients = nullptr;
  ExpertTensors* native_gradients = nullptr;  // [natives], the caller's gradient tensors
  std::uint16_t* slot_weights = nullptr;      // [borrow_slots][block], the borrow slots
  // [most_borrowed + copies][block], of experts that other ranks own (exchange/cuda/internal/returning.h).
  float* foreign_gradients = nullptr;

  std::uint16_t* rows = nullptr;       // [positions, D]
  std::uint16_t* exchanged = nullptr;  // [positions, D]: results forward, gradients of outputs backward
  float* row_gradients = nullptr;      // [positions, D]
  float* weights = nullptr;            // [positions]
  float* weight_gradients = nullptr;   // [positions]
  std::byte* workspace = nullptr;
  std::int64_t bytes = 0;
};

LayerBuffers lay_out(const BufferShape& shape, std::byte* base);

}  // namespace evenkeel::cuda
