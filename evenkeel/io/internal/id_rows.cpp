#include "evenkeel/io/internal/id_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "evenkeel/base/error.h"
#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

namespace {

constexpr std::int64_t block_elements = std::int64_t{1} << 18;

bool names_twice(std::span<const std::int64_t> row) {
  for (std::size_t i = 1; i < row.size(); ++i)
    if (row[i] != no_expert && std::find(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(i), row[i]) !=
                                   row.begin() + static_cast<std::ptrdiff_t>(i))
      return true;
  return false;
}

class RowWalk {
 public:
  RowWalk(IdRows& rows, std::optional<std::int64_t> filler) : rows_(rows), filler_(filler) {}

  void take(std::span<const std::int64_t> row, std::size_t layer) {
    const auto [least, most] = std::minmax_element(row.begin(), row.end());
    if (first_) rows_.least = *least, rows_.most = *most, first_ = false;
    rows_.least = std::min(rows_.least, *least);
    rows_.most = std::max(rows_.most, *most);
    take_sum(row, layer);
    IdRows::Layer& of_layer = rows_.layers[layer];
    if (*least == *most && *least == no_expert) {
      ++of_layer.absent;
    } else if (*least == *most && row.size() > 1) {
      if (of_layer.equal++ == 0) of_layer.equal_value = *least;
      of_layer.one_value = of_layer.one_value && of_layer.equal_value == *least;
    } else {
      ++of_layer.chosen;
      if (names_twice(row)) ++rows_.repeated;
      for (std::int64_t id : row) {
        if (id == filler_)
          rows_.filler_is_chosen = true;
        else
          rows_.most_chosen = std::max(rows_.most_chosen, id);
      }
    }
  }

  // More rows were compared than agree by chance, and no two differed.
  bool equal_sums() const { return compared_ >= 4 && !sums_differ_; }

 private:
  void take_sum(std::span<const std::int64_t> row, std::size_t layer) {
    if (layer == 0 && rows_.layers.size() > 1) step_sum_ = 0;
    std::int64_t sum = 0;
    for (std::int64_t number : row)
      if (__builtin_add_overflow(sum, number, &sum)) sums_differ_ = true;
    if (sum == 0) return;  // a dense layer has no counts
    if (step_sum_ != 0) ++compared_, sums_differ_ = sums_differ_ || sum != step_sum_;
    step_sum_ = sum;
  }

  IdRows& rows_;
  std::optional<std::int64_t> filler_;
  bool first_ = true;
  std::int64_t step_sum_ = 0;
  std::int64_t compared_ = 0;
  bool sums_differ_ = false;
};

std::string places(std::int64_t count, std::int64_t of) {
  return fmt::format("{} of {} rows", count, of);
}

// Layers in which no token has a choice.
bool is_dense(const IdRows::Layer& layer, bool literal, std::optional<std::int64_t> fill) {
  if (layer.chosen > 0) return false;
  if (layer.equal == 0) return layer.absent > 0;
  return !literal || fill == layer.equal_value || (layer.one_value && layer.equal + layer.absent > 1);
}

// The type's largest number is no expert where there are not so many, or where all others are far below it.
std::optional<std::int64_t> fill_of(const IdRows& rows, std::optional<int> num_experts,
                                    std::optional<std::int64_t> filler) {
  if (!filler || rows.most < *filler) return std::nullopt;
  const bool too_large = num_experts ? *filler >= *num_experts : rows.most_chosen < (*filler + 1) / 2;
  return too_large ? filler : std::nullopt;
}

}  // namespace

std::int64_t IdRows::equal_rows() const {
  return std::accumulate(layers.begin(), layers.end(), std::int64_t{0},
                         [](std::int64_t sum, const Layer& layer) { return sum + layer.equal; });
}

std::int64_t IdRows::chosen_rows() const {
  return std::accumulate(layers.begin(), layers.end(), std::int64_t{0},
                         [](std::int64_t sum, const Layer& layer) { return sum + layer.chosen; });
}

std::optional<std::int64_t> filler_of(Dtype type) {
  switch (type) {
    case Dtype::u8:
      return std::numeric_limits<std::uint8_t>::max();
    case Dtype::u16:
      return std::numeric_limits<std::uint16_t>::max();
    case Dtype::u32:
      return std::numeric_limits<std::uint32_t>::max();
    default:
      return std::nullopt;
  }
}

IdRows look_at_rows(ArrayReader& ids, std::int64_t tokens, std::int64_t layers, std::int64_t k) {
  IdRows rows{
      .tokens = tokens, .k = k, .layers = std::vector<IdRows::Layer>(static_cast<std::size_t>(layers))};
  RowWalk walk(rows, filler_of(ids.info().dtype));
  const std::int64_t of_token = layers * k;
  const std::int64_t block = std::max<std::int64_t>(1, block_elements / of_token);
  std::vector<std::int64_t> numbers;
  for (std::int64_t begin = 0; begin < tokens; begin += block) {
    numbers.resize(static_cast<std::size_t>(std::min(block, tokens - begin) * of_token));
    ids.read(begin * of_token, numbers);
    for (std::size_t at = 0; at < numbers.size(); at += static_cast<std::size_t>(k))
      walk.take(std::span(numbers).subspan(at, static_cast<std::size_t>(k)),
                at / static_cast<std::size_t>(k) % rows.layers.size());
  }
  rows.equal_sums = walk.equal_sums();
  return rows;
}

RowRules rules_of(const IdRows& rows, bool literal, std::optional<int> num_experts, Dtype type,
                  const std::string& file) {
  RowRules rules;
  rules.fill = fill_of(rows, num_experts, filler_of(type));
  rules.equal_rows_are_absent = !literal;
  if (rows.tokens > 0 && rows.chosen_rows() == 0 && !literal)
    throw ParseError(
        file, "", fmt::format("has no token whose {} ids differ, as those that a router chooses do", rows.k));
  std::vector<int> dense;
  for (std::size_t l = 0; l < rows.layers.size(); ++l)
    (rows.chosen_rows() > 0 && is_dense(rows.layers[l], literal, rules.fill) ? dense : rules.layers)
        .push_back(static_cast<int>(l));
  rules.largest_id = rows.most_chosen;
  if (rows.filler_is_chosen && !rules.fill) rules.largest_id = std::max(rules.largest_id, *filler_of(type));
  std::int64_t equal = 0;
  for (int layer : rules.layers) {
    const IdRows::Layer& of_layer = rows.layers[static_cast<std::size_t>(layer)];
    equal += of_layer.equal;
    if (literal && of_layer.equal > 0) rules.largest_id = std::max(rules.largest_id, rows.most);
  }
  if (literal && rules.fill == rules.largest_id) rules.largest_id = rows.most_chosen;
  if (!dense.empty())
    rules.notes.push_back(
        fmt::format("layers {} hold no router's choice and are left out as dense ones; the others "
                    "are the model's layers {}",
                    to_text(LayerNumbers(dense)), to_text(LayerNumbers(rules.layers))));
  if (!literal && equal > 0)
    rules.notes.push_back(fmt::format("{} hold one id {} times, which no router chooses: read as no expert",
                                      places(equal, rows.tokens * std::ssize(rules.layers)), rows.k));
  if (rules.fill && (literal || rows.filler_is_chosen))
    rules.notes.push_back(fmt::format("id {} fills places without an expert", *rules.fill));
  return rules;
}

}  // namespace evenkeel::internal
