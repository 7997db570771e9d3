// Random recordings for tests of the simulator.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "evenkeel/routing/recording.h"

namespace evenkeel::testing {

// A trace in which low expert ids are the popular ones and a twentieth of the ids is -1. If `sequences` is
// above 0, the tokens form that many sequences of equal length.
inline Recording trace_recording(int layers, int experts, int top_k, std::int64_t tokens, int sequences,
                                 std::uint64_t seed, double skew = 2) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * layers * top_k));
  std::uniform_real_distribution<double> uniform;
  for (std::int32_t& id : ids) {
    id = static_cast<std::int32_t>(std::pow(uniform(random), skew) * experts);
    if (uniform(random) < 0.05) id = -1;
  }
  std::vector<std::int64_t> offsets;
  for (int i = 0; sequences > 0 && i <= sequences; ++i) offsets.push_back(tokens * i / sequences);
  Recording recording{.name = "trace"};
  recording.trace = std::make_shared<MemoryTrace>(MemoryTrace::Shape{layers, top_k, experts}, std::move(ids),
                                                  std::vector<float>{}, std::move(offsets));
  return recording;
}

// A recording of one layer's loads by step.
inline Recording load_recording(const std::vector<std::vector<std::int64_t>>& steps) {
  Recording recording{.name = "loads"};
  recording.profile = RoutingProfile(1, static_cast<int>(steps.front().size()), false);
  for (const std::vector<std::int64_t>& loads : steps) {
    RoutingProfile step(1, static_cast<int>(loads.size()), loads, {});
    recording.profile.add(step);
    recording.steps.push_back(std::move(step));
  }
  return recording;
}

}  // namespace evenkeel::testing
