// A batch whose experts have given loads: what a router may have chosen where only counts were recorded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/batch.h"

namespace evenkeel::cli {

// Loads in proportion to these that add up to `total`: rounded down, and the largest remainders up.
std::vector<std::int64_t> scaled_loads(std::span<const std::int64_t> loads, std::int64_t total);

// Exactly these loads, which must add up to a multiple of top_k. Seeded which tokens choose which experts and
// with what weights; a token's experts are distinct where no load is above the number of tokens. Ranks have
// equal numbers of tokens, or nearly.
Batch batch_of_loads(std::string name, std::span<const std::int64_t> loads, int top_k, int num_ranks,
                     std::uint64_t seed);

}  // namespace evenkeel::cli
