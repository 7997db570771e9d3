// A layer of a placement as files have it: the expert that each physical expert is, the first rank's first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

using PhysicalRow = std::vector<std::int64_t>;

// As servers have them, equally many on every rank and in every layer. Ranks list their experts ascending; a
// layer in which each has those of dealt_round() is that row. Throws Unsupported, beginning with `server`,
// where ranks or layers hold unequal numbers.
std::vector<PhysicalRow> physical_rows(const Placement& placement, std::string_view server);
// Physical expert i is expert i mod E: what servers give a layer of which nobody says anything.
PhysicalRow dealt_round(std::size_t num_physical, int num_experts);
// "[0, 2, 1, 3]"
std::string row_text(const PhysicalRow& row);

struct NamedRow {
  std::string key;  // as messages call it
  PhysicalRow experts;
};

// Where the physical experts of each rank begin, and those of the last end, if all have equally many. Throws
// ParseError if they cannot; `besides` ends its sentence.
std::vector<std::int64_t> even_offsets(const NamedRow& row, int num_ranks, const std::string& file,
                                       std::string_view besides = "");
// The ranks of each expert, ascending. Throws ParseError: an expert outside the range, without a home, or
// twice on one rank.
std::vector<std::vector<int>> homes_in(const NamedRow& row, std::span<const std::int64_t> rank_offsets,
                                       int num_experts, const std::string& file);

}  // namespace evenkeel::internal
