// The weights of a model, tensor by tensor: what each is for, in which layer, and how devices share it. They
// come from a checkpoint's headers, from a model's parameters, or from a config.json by the family's rule
// (io/model_config.h). All code that counts weights uses this list.
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
  norms,      // norms and other weights on the residual path: scales, mixers of residual streams
  attention,  // attention, or what replaces it
  router,     // the router, and the projections to and from the experts' width
  experts,    // routed experts
  shared_experts,
  dense,       // the network of a layer without experts
  prediction,  // in a layer of multi-token prediction: the projection of two hidden states into one
  head,
  other  // fits no kind, such as an image encoder; on the first pipeline stage if it belongs to no layer
};

inline constexpr std::array<std::string_view, 10> weight_kinds = {
    "embedding",      "norms", "attention",  "router", "experts",
    "shared_experts", "dense", "prediction", "head",   "other"};

inline constexpr std::int64_t no_layer = -1;
inline constexpr int uncut = -1;

struct Weight {
  WeightKind kind = WeightKind::other;
  std::int64_t layer = no_layer;    // layers of multi-token prediction continue the numbering
  std::vector<std::int64_t> shape;  // experts: one tensor for all of a layer, the first axis counts them
  int axis = uncut;                 // the axis that tensor parallelism cuts; uncut: whole on each device
  std::int64_t max_parts = 0;       // the most parts of a cut, since heads stay whole; 0: no limit
  bool trained = true;              // false: it has no gradient and no optimizer state
  std::int64_t number_bytes = 0;    // bytes of one number in its tensor; 0 if there is no tensor
  std::string name = "";            // the tensor's name

  std::int64_t numbers() const;
};

// How many devices share each dimension of weights.
struct WeightCut {
  std::int64_t tensor = 1;
  std::int64_t expert = 1;
  std::int64_t expert_tensor = 1;
};

// The shape of the largest part that a device holds: an axis of length n that is cut into p parts has length
// ceil(n / p), as in DTensor.
std::vector<std::int64_t> shape_on_device(const Weight& weight, const WeightCut& cut);
std::int64_t product(std::span<const std::int64_t> lengths);

}  // namespace evenkeel
