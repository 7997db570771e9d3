// A layer of a placement as in files: the expert of each physical expert, ordered by rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

using PhysicalRow = std::vector<std::int64_t>;

// The rows as servers need them, with equally many experts on every rank and in every layer. Each rank's
// experts are ascending, except that a layer whose ranks hold the experts of default_row() gets exactly that
// row. Throws Unsupported, beginning with `server`, if ranks or layers hold unequal numbers.
std::vector<PhysicalRow> physical_rows(const Placement& placement, std::string_view server);
// Physical expert i is expert i mod E: the servers' default for a layer without a placement.
PhysicalRow default_row(std::size_t num_physical, int num_experts);
// "[0, 2, 1, 3]"
std::string row_text(const PhysicalRow& row);

struct NamedRow {
  std::string key;  // its name in messages
  PhysicalRow experts;
};

// Offsets of each rank's physical experts, [P+1], if all ranks have equally many. Throws ParseError if that
// is impossible; `besides` is appended to the message.
std::vector<std::int64_t> even_offsets(const NamedRow& row, int num_ranks, const std::string& file,
                                       std::string_view besides = "");
// The ranks of each expert, ascending. Throws ParseError if an expert is out of range, has no home, or is
// twice on one rank.
std::vector<std::vector<int>> homes_in(const NamedRow& row, std::span<const std::int64_t> rank_offsets,
                                       int num_experts, const std::string& file);

}  // namespace evenkeel::internal
