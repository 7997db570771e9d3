#include "evenkeel/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "evenkeel/report/table.h"

namespace evenkeel {

namespace {

constexpr int kMostCells = 32;
constexpr std::array<std::string_view, 5> kShades = {" ", "░", "▒", "▓", "█"};

// The cell of each rank, and what one cell is called.
struct Cells {
  std::vector<int> of_rank;
  int count = 0;
  std::string unit;
};

Cells cells_of(const Topology& topology) {
  Cells cells;
  const int ranks = topology.num_ranks();
  const bool by_node = ranks > kMostCells && topology.num_nodes() > 1 && topology.num_nodes() <= kMostCells;
  const int block = (ranks + kMostCells - 1) / kMostCells;
  for (int rank = 0; rank < ranks; ++rank)
    cells.of_rank.push_back(by_node ? topology.node_of(RankId(rank)).value() : rank / block);
  cells.count = by_node ? topology.num_nodes() : (ranks + block - 1) / block;
  cells.unit = by_node ? "node" : block == 1 ? "rank" : fmt::format("{} ranks", block);
  return cells;
}

std::vector<double> sums_of(const Cells& cells, std::span<const double> traffic) {
  const std::size_t ranks = cells.of_rank.size();
  const auto count = static_cast<std::size_t>(cells.count);
  std::vector<double> sums(count * count, 0.0);
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to)
      sums[static_cast<std::size_t>(cells.of_rank[from]) * count +
           static_cast<std::size_t>(cells.of_rank[to])] += traffic[from * ranks + to];
  return sums;
}

// One scale of shades for both pictures, over all cells except the diagonal.
struct Scale {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;

  void take(const std::vector<double>& sums, std::size_t count) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (i / count == i % count) continue;
      least = std::min(least, sums[i]);
      most = std::max(most, sums[i]);
    }
  }
  std::string_view shade(double value) const {
    const double share = most > least ? (value - least) / (most - least) : 0;
    return kShades[static_cast<std::size_t>(std::clamp(share * kShades.size(), 0.0, kShades.size() - 1.0))];
  }
};

std::string row_of(const std::vector<double>& sums, std::size_t count, std::size_t row, const Scale& scale,
                   int width) {
  std::string text;
  for (std::size_t column = 0; column < count; ++column) {
    const std::string_view cell = row == column ? "·" : scale.shade(sums[row * count + column]);
    for (int i = 0; i < width; ++i) text += cell;
  }
  return text;
}

}  // namespace

std::string heat_maps(const Topology& topology, std::span<const double> before, std::span<const double> after,
                      const std::string& before_name, const std::string& after_name) {
  const Cells cells = cells_of(topology);
  const auto count = static_cast<std::size_t>(cells.count);
  const std::vector<double> first = sums_of(cells, before);
  const std::vector<double> second = sums_of(cells, after);
  Scale scale;
  scale.take(first, count);
  scale.take(second, count);
  const int width = cells.count <= kMostCells / 2 ? 2 : 1;
  const std::size_t columns_each =
      std::max({count * static_cast<std::size_t>(width), display_width(before_name)});
  std::string text =
      fmt::format("  from {:>4}  {}   {}\n", "", padded(before_name, columns_each), after_name);
  for (std::size_t row = 0; row < count; ++row) {
    std::string line =
        fmt::format("  {:>9}  {}   {}", row, padded(row_of(first, count, row, scale, width), columns_each),
                    row_of(second, count, row, scale, width));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  const std::string pair = cells.unit == "rank" || cells.unit == "node"
                               ? fmt::format("pair of {}s", cells.unit)
                               : fmt::format("pair of blocks of {}", cells.unit);
  return text + fmt::format("  a cell is a {}; blank from {:.4g}, █ to {:.4g}; · stays within it\n", pair,
                            scale.least, scale.most);
}

}  // namespace evenkeel
