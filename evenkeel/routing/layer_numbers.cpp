#include "evenkeel/routing/layer_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

LayerNumbers::LayerNumbers(std::vector<int> numbers, const std::string& argument)
    : numbers_(std::move(numbers)) {
  int before = -1;
  for (int number : numbers_) {
    if (number <= before || number > max_layer_number)
      throw InvalidArgument(argument,
                            before < 0 ? fmt::format("layer {}", number)
                                       : fmt::format("layer {} after layer {}", number, before),
                            fmt::format("ascending numbers in 0..{}", max_layer_number));
    before = number;
  }
}

std::optional<int> LayerNumbers::row_of(int number, int num_rows) const {
  if (!known()) return number >= 0 && number < num_rows ? std::optional(number) : std::nullopt;
  const auto found = std::lower_bound(numbers_.begin(), numbers_.end(), number);
  if (found == numbers_.end() || *found != number) return std::nullopt;
  return static_cast<int>(found - numbers_.begin());
}

std::string to_text(const LayerNumbers& layers) {
  const std::vector<int>& numbers = layers.numbers();
  std::string text;
  for (std::size_t first = 0, last = 0; first < numbers.size(); first = ++last) {
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[first]);
    if (last > first) text += fmt::format("-{}", numbers[last]);
  }
  return text;
}

std::string described(const LayerNumbers& layers, int num_rows) {
  if (layers.known()) return fmt::format("layer{} {}", num_rows == 1 ? "" : "s", to_text(layers));
  return fmt::format("{} layer{} without numbers", num_rows, num_rows == 1 ? "" : "s");
}

std::vector<int> paired_rows(const NumberedRows& wanted, const NumberedRows& from,
                             const std::string& argument) {
  const auto refuse = [&](const std::string& allowed) {
    throw InvalidArgument(
        argument,
        fmt::format("{} has {}, but {} has {}", from.name, described(from.layers, from.num_rows), wanted.name,
                    described(wanted.layers, wanted.num_rows)),
        allowed);
  };
  std::vector<int> rows(static_cast<std::size_t>(wanted.num_rows));
  if (!wanted.layers.known() || !from.layers.known()) {
    if (wanted.num_rows != from.num_rows) refuse("the same number of layers, or layer numbers in both");
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  for (int row = 0; row < wanted.num_rows; ++row) {
    const auto found = from.layers.row_of(wanted.layers.number_of(row), from.num_rows);
    if (!found) refuse(fmt::format("one with layers {}", to_text(wanted.layers)));
    rows[static_cast<std::size_t>(row)] = *found;
  }
  return rows;
}

}  // namespace evenkeel
