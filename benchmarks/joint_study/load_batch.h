// Makes batches from recorded loads of experts, for recordings that have nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/study/batch.h"

namespace evenkeel::study {

// Choices that a router could have made, with exactly these loads, whose sum must be a multiple of top_k. The
// seed decides which tokens choose which experts, and the weights. A token's experts are distinct if no load
// exceeds the number of tokens. Ranks have (nearly) equal numbers of tokens.
Batch batch_of_loads(std::string name, std::span<const std::int64_t> loads, int top_k, int num_ranks,
                     std::uint64_t seed);
// Loads with sum `total`, in proportion to the given loads: rounded down, except for the largest remainders.
std::vector<std::int64_t> scaled_loads(std::span<const std::int64_t> loads, std::int64_t total);

}  // namespace evenkeel::study
