// The routing profile: what a placement needs to know about a trace. Its size does not grow with the trace.
//
// loads        [L, E]: the assignments of each expert in each layer.
// transitions  [L-1, E, E]: for expert a in layer l and expert b in layer l+1, the number of pairs of an
//              assignment to a and an assignment to b of the same token, over all tokens. A token with k
//              experts in both layers contributes k x k pairs. A token that is absent (-1) from one of the
//              two layers contributes none.
// Cost         O(tokens x layers x k^2) time; memory for one batch of the trace and for the profile itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/routing/layer_numbers.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

class RoutingProfile {
 public:
  RoutingProfile() = default;
  // All counts are zero. Throws InvalidArgument if there is no layer or no expert.
  RoutingProfile(int num_layers, int num_experts, bool with_transitions = true);
  // loads [L, E] and transitions [L-1, E, E], or no transitions. Throws InvalidArgument if sizes do not fit,
  // a number is negative, or the loads or the transitions add up to more than 2^63-1.
  RoutingProfile(int num_layers, int num_experts, std::vector<std::int64_t> loads,
                 std::vector<std::int64_t> transitions);

  int num_layers() const { return num_layers_; }
  int num_experts() const { return num_experts_; }
  // The layer of the model that each row belongs to, if the source says it.
  const LayerNumbers& layers() const { return layers_; }
  // Throws InvalidArgument if there are layer numbers, but not one for each layer.
  void set_layers(LayerNumbers layers);
  bool has_transitions() const { return has_transitions_; }

  // [L, E]; loads(layer) is [E].
  std::span<const std::int64_t> loads() const { return loads_; }
  std::span<const std::int64_t> loads(LayerId layer) const;
  std::int64_t load(LayerId layer, ExpertId expert) const { return loads(layer)[expert.offset()]; }
  std::int64_t total_load(LayerId layer) const;

  // [L-1, E, E]; transitions(layer) is the matrix [E, E] from `layer` to the next; its rows are experts of
  // `layer`.
  std::span<const std::int64_t> transitions() const { return transitions_; }
  std::span<const std::int64_t> transitions(LayerId layer) const;

  RoutingProfile without_transitions() const;
  // Adds the profile of another trace of the same model. If only one of the two profiles has layer numbers,
  // they count for both. Throws InvalidArgument if layers, their numbers, experts or the presence of
  // transitions differ, or the sum is above 2^63-1. After an exception this profile is unchanged.
  void add(const RoutingProfile& other);
  // Adds tokens: ids [tokens, layers, k], each in 0..E-1 or no_expert. Throws InvalidArgument for other ids
  // or lengths, a profile without layers, or a total above 2^63-1. After an exception this profile is
  // unchanged.
  void add_tokens(std::span<const std::int32_t> ids, int top_k);

  friend bool operator==(const RoutingProfile&, const RoutingProfile&) = default;

 private:
  void add_loads(std::span<const std::int32_t> of_token, std::size_t top_k);
  void add_transitions(std::span<const std::int32_t> of_token, std::size_t top_k);

  int num_layers_ = 0;
  int num_experts_ = 0;
  bool has_transitions_ = false;
  LayerNumbers layers_;
  std::int64_t total_load_ = 0;         // over all layers
  std::int64_t total_transitions_ = 0;  // over all layers
  std::vector<std::int64_t> loads_;
  std::vector<std::int64_t> transitions_;
};

struct ProfileOptions {
  bool transitions = true;
  // Throws Unsupported if transitions would be larger than this. 1,024 experts in 64 layers need 504 MiB.
  std::int64_t max_transition_bytes = std::int64_t{4} << 30;
};

// Reads the whole trace once.
RoutingProfile profile_trace(TraceReader& trace, const ProfileOptions& options = {});

}  // namespace evenkeel
