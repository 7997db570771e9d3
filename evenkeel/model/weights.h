// The weights of a model, tensor by tensor: what each is for, in which layer, and how it is cut over devices.
// They come from a checkpoint's headers, from a model's parameters, or from what the family's rule says of a
// config.json (io/model_config.h); everything that counts weights goes over them.
//
//   Mixtral's experts of layer 3:  {experts, 3, {8, 28672, 4096}, 1}, {experts, 3, {8, 4096, 14336}, 2}
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

enum class WeightKind {
  embedding,
  norms,      // and what else stands on the way past the blocks: scales, mixers of streams
  attention,  // or what stands in its place
  router,     // and the ways into the width that experts work in, and back
  experts,    // the routed ones
  shared_experts,
  dense,       // the network of a layer without experts
  prediction,  // of a layer for further tokens, the projection of two hidden states into one
  head,
  other  // fits no kind, such as a tower for images; of the first pipeline stage where it is of no layer
};

inline constexpr std::array<std::string_view, 10> weight_kinds = {
    "embedding",      "norms", "attention",  "router", "experts",
    "shared_experts", "dense", "prediction", "head",   "other"};

inline constexpr std::int64_t no_layer = -1;
inline constexpr int uncut = -1;

struct Weight {
  WeightKind kind = WeightKind::other;
  std::int64_t layer = no_layer;    // layers for further tokens (MTP) are numbered on
  std::vector<std::int64_t> shape;  // of experts, all of a layer: the first axis counts them
  int axis = uncut;                 // that tensor parallelism cuts; uncut: whole on each device
  std::int64_t most_parts = 0;      // into so many at most, since heads stay whole; 0: as many as one likes
  bool trained = true;              // else it has no gradient and no optimizer state
  std::int64_t number_bytes = 0;    // as its tensor has it; 0 where there is none
  std::string name = "";            // of the tensor

  std::int64_t numbers() const;
};

// How many devices share each dimension of weights.
struct WeightCut {
  std::int64_t tensor = 1;
  std::int64_t expert = 1;
  std::int64_t expert_tensor = 1;
};

// Lengths of what the fullest device holds of it: of an axis of n cut into p, ceil(n / p), as DTensor has it.
std::vector<std::int64_t> shape_on_device(const Weight& weight, const WeightCut& cut);
std::int64_t product(std::span<const std::int64_t> lengths);

}  // namespace evenkeel
