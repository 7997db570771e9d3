// A placement as other systems write it: in each layer the expert that each physical expert is, the first
// rank's first, equally many on every rank and in every layer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

using PhysicalRow = std::vector<std::int64_t>;

// Ranks list their experts ascending; a layer in which each has those of dealt_round() is that row. Throws
// Unsupported, beginning with `format`, where ranks or layers hold unequal numbers.
std::vector<PhysicalRow> physical_rows(const Placement& placement, std::string_view format);
// Physical expert i is expert i mod E: what servers give a layer of which nobody says anything.
PhysicalRow dealt_round(std::size_t num_physical, int num_experts);
// Whether each of the ranks has the experts of such a row, in whatever order.
bool is_dealt_round(const PhysicalRow& row, int num_experts, int num_ranks);
// "[0, 2, 1, 3]"
std::string row_text(std::span<const std::int64_t> row);

// The sizes that a file of such rows may leave to be known.
struct RowsShape {
  std::string file;
  int num_ranks = 0;
  // Where neither caller nor file says it: the largest id plus one.
  std::optional<int> num_experts = {};
};

struct NamedRow {
  std::string key;  // as messages call it
  PhysicalRow experts;
};

// Throws ParseError: an expert outside the range, without a home, or twice on one rank; a row that is not
// equally long for all ranks.
Placement placement_of_rows(const std::vector<NamedRow>& rows, const RowsShape& shape);

}  // namespace evenkeel::internal
