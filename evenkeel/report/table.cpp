#include "evenkeel/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "evenkeel/base/printable.h"

namespace evenkeel {

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

std::string padded(std::string text, std::size_t width) {
  text.append(width - std::min(width, display_width(text)), ' ');
  return text;
}

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string Table::text(int indent) const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], display_width(row[c]));
  std::string text;
  for (const auto& row : rows_) {
    std::string line(static_cast<std::size_t>(indent), ' ');
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - display_width(row[c]), ' ');
      line += c == 0 ? row[c] + space : "  " + space + row[c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string bar(std::int64_t value, std::int64_t whole, int width) {
  constexpr std::array<std::string_view, 8> parts = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (whole <= 0 || value <= 0) return "";
  const double share = static_cast<double>(value) / static_cast<double>(whole);
  const int eighths = std::clamp(static_cast<int>(std::lround(share * width * 8)), 1, width * 8);
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text += parts[static_cast<std::size_t>(eighths % 8)];
}

std::string load_picture(const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& after,
                         const std::string& before_name, const std::string& after_name) {
  constexpr int width = 26;
  const std::int64_t whole = std::max(std::ranges::max(before), std::ranges::max(after));
  std::string text =
      fmt::format("  rank  {}  {}\n", padded(before_name, width + 11), padded(after_name, width + 11));
  for (std::size_t rank = 0; rank < before.size(); ++rank)
    text +=
        fmt::format("  {:>4}  {} {:>10}  {} {:>10}\n", rank, padded(bar(before[rank], whole, width), width),
                    before[rank], padded(bar(after[rank], whole, width), width), after[rank]);
  return text;
}

}  // namespace evenkeel
