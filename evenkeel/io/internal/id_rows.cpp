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

// Which of the ids that a model may have are in a set.
class IdSet {
 public:
  void add(std::int64_t id) {
    if (id >= 0 && id < max_trace_experts) has_[static_cast<std::size_t>(id)] = true;
  }
  bool has(std::int64_t id) const {
    return id >= 0 && id < max_trace_experts && has_[static_cast<std::size_t>(id)];
  }

 private:
  std::vector<bool> has_ = std::vector<bool>(static_cast<std::size_t>(max_trace_experts), false);
};

class TokenWalk {
 public:
  TokenWalk(IdRows& rows, std::optional<std::int64_t> filler) : rows_(rows), filler_(filler) {}

  // [layers, k]
  void take(std::span<const std::int64_t> token) {
    const auto k = static_cast<std::size_t>(rows_.k);
    const bool blank = is_blank(token);
    if (blank) ++rows_.blank_tokens;
    if (rows_.layers.size() > 1) step_sum_ = 0;
    for (std::size_t l = 0; l < rows_.layers.size(); ++l)
      take_row(token.subspan(l * k, k), rows_.layers[l], blank);
  }

  void finish() {
    // More rows were compared than agree by chance, and no two differed.
    rows_.equal_sums = compared_ >= 4 && !sums_differ_;
    std::int64_t found = 0;
    for (std::int64_t id = 0; id < max_trace_experts; ++id) {
      if (!equal_.has(id) || chosen_.has(id)) continue;
      rows_.unchosen = id;
      ++found;
    }
    if (found != 1) rows_.unchosen.reset();
  }

 private:
  static bool is_equal(std::span<const std::int64_t> row) {
    return std::ranges::all_of(row, [&](std::int64_t id) { return id == row.front(); });
  }

  bool is_blank(std::span<const std::int64_t> token) const {
    const auto k = static_cast<std::size_t>(rows_.k);
    if (k == 1 || rows_.layers.size() == 1) return false;
    std::int64_t other = 0;
    bool any = false;
    for (std::size_t at = 0; at < token.size(); at += k) {
      const auto row = token.subspan(at, k);
      if (!is_equal(row)) return false;
      any = any || row.front() != no_expert;
      if (row.front() == 0 || row.front() == no_expert) continue;
      if (other != 0 && row.front() != other) return false;
      other = row.front();
    }
    return any;
  }

  void take_row(std::span<const std::int64_t> row, IdRows::Layer& layer, bool blank) {
    const auto [least, most] = std::minmax_element(row.begin(), row.end());
    rows_.least = first_ ? *least : std::min(rows_.least, *least);
    rows_.most = first_ ? *most : std::max(rows_.most, *most);
    first_ = false;
    take_sum(row);
    layer.is_zero = layer.is_zero && *least >= no_expert && *most <= 0;
    if (*least == *most && *least == no_expert) {
      ++layer.absent;
    } else if (*least == *most && row.size() > 1) {
      if (layer.equal++ == 0) layer.equal_value = *least;
      layer.one_value = layer.one_value && layer.equal_value == *least;
      if (!blank) layer.most_equal = std::max(layer.most_equal, *least);
      equal_.add(*least);
    } else {
      ++layer.chosen;
      if (names_twice(row)) ++rows_.repeated;
      for (std::int64_t id : row) take_chosen(id);
    }
  }

  void take_chosen(std::int64_t id) {
    chosen_.add(id);
    if (id == filler_)
      rows_.filler_is_chosen = true;
    else
      rows_.most_chosen = std::max(rows_.most_chosen, id);
  }

  void take_sum(std::span<const std::int64_t> row) {
    std::int64_t sum = 0;
    for (std::int64_t number : row)
      if (__builtin_add_overflow(sum, number, &sum)) sums_differ_ = true;
    if (sum == 0) return;  // a dense layer has no counts
    if (step_sum_ != 0) ++compared_, sums_differ_ = sums_differ_ || sum != step_sum_;
    step_sum_ = sum;
  }

  IdRows& rows_;
  std::optional<std::int64_t> filler_;
  IdSet chosen_;
  IdSet equal_;
  bool first_ = true;
  std::int64_t step_sum_ = 0;
  std::int64_t compared_ = 0;
  bool sums_differ_ = false;
};

// No row that a router could have chosen; of ids that are taken as they stand, one id throughout.
bool is_dense(const IdRows::Layer& layer, bool literal) {
  if (layer.chosen > 0) return !literal && layer.is_zero && layer.chosen + layer.absent > 1;
  if (layer.equal == 0) return layer.absent > 0;
  return (!literal || layer.one_value) && layer.equal + layer.absent > 1;
}

// The type's largest number is no expert where there are not so many, or where all others are far below it.
std::optional<std::int64_t> fill_of(const IdRows& rows, std::optional<int> num_experts,
                                    std::optional<std::int64_t> filler) {
  if (!filler || rows.most < *filler) return std::nullopt;
  const bool too_large = num_experts ? *filler >= *num_experts : rows.most_chosen < (*filler + 1) / 2;
  return too_large ? filler : std::nullopt;
}

}  // namespace

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
  IdRows rows;
  rows.tokens = tokens;
  rows.k = k;
  rows.layers.resize(static_cast<std::size_t>(layers));
  TokenWalk walk(rows, filler_of(ids.info().dtype));
  const std::int64_t of_token = layers * k;
  const std::int64_t block = std::max<std::int64_t>(1, block_elements / of_token);
  std::vector<std::int64_t> numbers;
  for (std::int64_t begin = 0; begin < tokens; begin += block) {
    numbers.resize(static_cast<std::size_t>(std::min(block, tokens - begin) * of_token));
    ids.read(begin * of_token, numbers);
    for (std::size_t at = 0; at < numbers.size(); at += static_cast<std::size_t>(of_token))
      walk.take(std::span(numbers).subspan(at, static_cast<std::size_t>(of_token)));
  }
  walk.finish();
  return rows;
}

namespace {

void note_what_is_left_out(const IdRows& rows, const std::vector<int>& dense, RowRules& rules) {
  if (!dense.empty())
    rules.notes.push_back(fmt::format(
        "layers {} hold one id throughout and are left out as dense ones; the others are the model's "
        "layers {}",
        to_text(LayerNumbers(dense)), to_text(LayerNumbers(rules.layers))));
  if (rules.blank_tokens_are_absent && rows.blank_tokens > 0)
    rules.notes.push_back(
        fmt::format("{} of {} tokens hold one id throughout: read as tokens without experts",
                    rows.blank_tokens, rows.tokens));
  if (rules.fill) rules.notes.push_back(fmt::format("id {} fills places without an expert", *rules.fill));
}

}  // namespace

RowRules rules_of(const IdRows& rows, bool literal, std::optional<int> num_experts, Dtype type,
                  const std::string& file) {
  RowRules rules;
  rules.blank_tokens_are_absent = !literal;
  if (rows.tokens > 0 && rows.chosen_rows() == 0 && !literal && num_experts != 1)
    throw ParseError(
        file, "", fmt::format("has no token whose {} ids differ, as those that a router chooses do", rows.k));
  std::vector<int> dense;
  for (std::size_t l = 0; l < rows.layers.size(); ++l)
    (rows.chosen_rows() > 0 && is_dense(rows.layers[l], literal) ? dense : rules.layers)
        .push_back(static_cast<int>(l));
  if (rules.layers.empty()) rules.layers.swap(dense);  // nothing tells one from another
  std::int64_t scattered = -1;  // the largest of equal rows that are read as they stand
  for (int layer : rules.layers)
    scattered = std::max(scattered, rows.layers[static_cast<std::size_t>(layer)].most_equal);
  rules.fill = fill_of(rows, num_experts, filler_of(type));
  if (!rules.fill && !literal && scattered >= 0) rules.fill = rows.unchosen;
  rules.largest_id = rows.most_chosen;
  if (scattered != rules.fill) rules.largest_id = std::max(rules.largest_id, scattered);
  if (rows.filler_is_chosen && !rules.fill) rules.largest_id = std::max(rules.largest_id, *filler_of(type));
  note_what_is_left_out(rows, dense, rules);
  return rules;
}

}  // namespace evenkeel::internal
