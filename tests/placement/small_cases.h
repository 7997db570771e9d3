// Small random traces, placements and topologies for the tests of placement.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "evenkeel/plan/placement.h"
#include "evenkeel/routing/profile.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

struct SmallTrace {
  int num_layers = 0;
  int top_k = 0;
  int num_experts = 0;
  std::vector<std::int32_t> ids;        // [tokens, L, k], some are no_expert
  std::vector<std::int64_t> sequences;  // sequence offsets

  std::int32_t id(std::int64_t token, int layer, int place) const {
    return ids[static_cast<std::size_t>((token * num_layers + layer) * top_k + place)];
  }
  std::unique_ptr<TraceReader> reader() const;
};

// The profile of random top-2 tokens with some hot experts; includes transitions.
RoutingProfile random_profile(std::uint64_t seed, int layers, int experts, int tokens = 300);
SmallTrace random_trace(std::mt19937_64& random);
// Every expert on one random rank; with `copies`, on one or more.
Placement random_placement(std::mt19937_64& random, int num_layers, int num_experts, int num_ranks,
                           bool copies);
}  // namespace evenkeel
