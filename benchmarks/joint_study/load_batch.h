// Batches made of the loads of experts, where only those were recorded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/study/batch.h"

namespace evenkeel::study {

// Choices that a router may have made: exactly these loads, which must add up to a multiple of top_k. Seeded
// which tokens choose which experts and with what weights; a token's experts are distinct where no load is
// above the number of tokens. Ranks have equal numbers of tokens, or nearly.
Batch batch_of_loads(std::string name, std::span<const std::int64_t> loads, int top_k, int num_ranks,
                     std::uint64_t seed);
// Loads in proportion to these that add up to `total`: rounded down, and the largest remainders up.
std::vector<std::int64_t> scaled_loads(std::span<const std::int64_t> loads, std::int64_t total);

}  // namespace evenkeel::study
