#include "tests/placement/small_cases.h"

namespace evenkeel {

namespace {

int draw(std::mt19937_64& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

}  // namespace

std::unique_ptr<TraceReader> SmallTrace::reader() const {
  return std::make_unique<MemoryTrace>(
      MemoryTrace::Shape{.num_layers = num_layers, .top_k = top_k, .num_experts = num_experts}, ids,
      std::vector<float>{}, sequences);
}

RoutingProfile random_profile(std::uint64_t seed, int layers, int experts, int tokens) {
  std::mt19937_64 random(seed);
  RoutingProfile profile(layers, experts);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < tokens * layers * 2; ++i) {
    // The draw is squared, so that some experts are hot.
    const double draw = std::uniform_real_distribution<double>(0, 1)(random);
    ids.push_back(static_cast<std::int32_t>(draw * draw * experts));
  }
  profile.add_tokens(ids, 2);
  return profile;
}

SmallTrace random_trace(std::mt19937_64& random) {
  SmallTrace trace{.num_layers = draw(random, 1, 4),
                   .top_k = draw(random, 1, 3),
                   .num_experts = draw(random, 1, 7),
                   .ids = {},
                   .sequences = {0}};
  const int sequences = draw(random, 1, 6);
  for (int i = 0; i < sequences; ++i) {
    const int tokens = draw(random, 0, 9);
    for (int n = 0; n < tokens * trace.num_layers * trace.top_k; ++n)
      trace.ids.push_back(draw(random, 0, 9) == 0 ? no_expert : draw(random, 0, trace.num_experts - 1));
    trace.sequences.push_back(trace.sequences.back() + tokens);
  }
  return trace;
}

Placement random_placement(std::mt19937_64& random, int num_layers, int num_experts, int num_ranks,
                           bool copies) {
  std::vector<LayerPlacement> layers;
  for (int layer = 0; layer < num_layers; ++layer) {
    std::vector<std::vector<int>> homes(static_cast<std::size_t>(num_experts));
    for (auto& of_expert : homes) {
      of_expert.push_back(draw(random, 0, num_ranks - 1));
      for (int rank = 0; copies && rank < num_ranks; ++rank)
        if (rank != of_expert.front() && draw(random, 0, 2) == 0) of_expert.push_back(rank);
    }
    layers.emplace_back(homes, num_ranks);
  }
  return Placement(std::move(layers));
}

}  // namespace evenkeel
