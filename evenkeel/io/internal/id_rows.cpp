#include "evenkeel/io/internal/id_rows.h"

#include <fmt/format.h>

#include <numeric>
#include <span>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

namespace {

constexpr std::int64_t block_elements = std::int64_t{1} << 18;

// A filler this far above all experts need not be one of them, however few of them were met.
constexpr std::int64_t far_above = 16;

bool names_twice(std::span<const std::int64_t> row) {
  for (std::size_t i = 1; i < row.size(); ++i) {
    const auto here = row.begin() + static_cast<std::ptrdiff_t>(i);
    if (row[i] != no_expert && !is_filler(row[i]) && std::find(row.begin(), here, row[i]) != here)
      return true;
  }
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
  explicit TokenWalk(IdRows& rows) : rows_(rows) {}

  // [layers, k]
  void take(std::span<const std::int64_t> token) {
    const auto k = static_cast<std::size_t>(rows_.k);
    const bool blank = is_blank(token);
    if (blank) ++rows_.blank_tokens;
    for (std::size_t l = 0; l < rows_.layers.size(); ++l)
      take_row(token.subspan(l * k, k), rows_.layers[l], blank);
  }

  void finish() {
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
    const bool chosen = *least != *most || row.size() == 1;
    for (std::size_t i = 0; i < fillers.size(); ++i)
      take_filler(row, *most, fillers[i], chosen, rows_.of_filler[i]);
    layer.is_zero = layer.is_zero && *least >= no_expert && *most <= 0;
    if (*least == *most && *least == no_expert) {
      ++layer.absent;
    } else if (*least == *most && row.size() > 1) {
      if (layer.equal++ == 0) layer.equal_value = *least;
      layer.one_value = layer.one_value && layer.equal_value == *least;
      if (!blank) layer.scattered.add({1, *least, *least});
      equal_.add(*least);
    } else {
      ++layer.chosen;
      if (names_twice(row)) ++rows_.repeated;
      for (std::int64_t id : row) chosen_.add(id);
      rows_.most_chosen = std::max(rows_.most_chosen, *most);
    }
  }

  static void take_filler(std::span<const std::int64_t> row, std::int64_t most, std::int64_t id, bool chosen,
                          IdRows::Filler& filler) {
    std::int64_t below = most;
    if (most >= id) {
      const auto count = std::ranges::count(row, id);
      filler.met = filler.met || count > 0;
      filler.chosen = filler.chosen || (chosen && count > 0);
      filler.twice = filler.twice || (chosen && count > 1);
      below = no_expert;
      for (const std::int64_t each : row)
        if (each < id) below = std::max(below, each);
    }
    filler.below = std::max(filler.below, below);
    if (chosen) filler.chosen_below = std::max(filler.chosen_below, below);
  }

  IdRows& rows_;
  IdSet chosen_;
  IdSet equal_;
  bool first_ = true;
};

// No row that a router could have chosen; of ids that are taken as they stand, one id throughout.
bool is_dense(const IdRows::Layer& layer, bool literal) {
  if (layer.chosen > 0) return !literal && layer.is_zero && layer.chosen + layer.absent > 1;
  if (layer.equal == 0) return layer.absent > 0;
  return !literal || (layer.one_value && layer.equal + layer.absent > 1);
}

}  // namespace

std::int64_t IdRows::chosen_rows() const {
  return std::accumulate(layers.begin(), layers.end(), std::int64_t{0},
                         [](std::int64_t sum, const Layer& layer) { return sum + layer.chosen; });
}

bool is_filler(std::int64_t id) {
  return std::ranges::find(fillers, id) != fillers.end();
}

namespace {

enum class Looks { like_an_expert, like_a_fill, like_either };

Looks looks_of(std::int64_t id, const IdRows::Filler& filler, const IdRows& rows) {
  if (!filler.chosen) return Looks::like_a_fill;  // it stands alone in its rows
  const std::int64_t others = filler.chosen_below;
  if (others < (id + 1) / 2 || (filler.twice && rows.repeated == 0)) return Looks::like_a_fill;
  return others >= id - far_above ? Looks::like_an_expert : Looks::like_either;
}

}  // namespace

std::vector<std::int64_t> fills_of(const IdRows& rows, std::optional<int> num_experts,
                                   const std::string& file) {
  std::vector<std::int64_t> fills;
  std::int64_t largest = rows.most;  // of what is not known to fill
  for (std::size_t i = fillers.size(); i-- > 0;) {
    const std::int64_t id = fillers[i];
    const IdRows::Filler& filler = rows.of_filler[i];
    if (!filler.met || (num_experts && id < *num_experts)) continue;
    if (id != largest) continue;
    const Looks looks = num_experts ? Looks::like_a_fill : looks_of(id, filler, rows);
    if (looks == Looks::like_an_expert) break;
    const std::int64_t others = filler.chosen_below;
    if (!num_experts && !fills.empty())
      throw InvalidArgument(
          "num_experts",
          fmt::format("{}: ids {} and {} both stand beside ids up to {}: both may fill places without an "
                      "expert, or {} may be one",
                      file, id, fills.back(), others, id),
          fmt::format("{}..{} if both fill, {} or more if {} is an expert", others + 1, id, id + 1, id));
    if (looks == Looks::like_either)
      throw InvalidArgument(
          "num_experts",
          fmt::format("{}: id {} stands beside ids up to {}: it may be an expert, or fill places without one",
                      file, id, others),
          fmt::format("{} if it is an expert, {} or more if it fills", id + 1, others + 1));
    fills.push_back(id);
    largest = filler.below;
  }
  return fills;
}

std::int64_t largest_chosen(const IdRows& rows, const std::vector<std::int64_t>& fills) {
  std::int64_t largest = rows.most_chosen;
  for (std::size_t i = fillers.size(); i-- > 0;)
    if (largest == fillers[i] && std::ranges::find(fills, largest) != fills.end())
      largest = rows.of_filler[i].chosen_below;
  return largest;
}

IdRows look_at_rows(ArrayReader& ids, std::int64_t tokens, std::int64_t layers, std::int64_t k) {
  IdRows rows;
  rows.tokens = tokens;
  rows.k = k;
  rows.layers.resize(static_cast<std::size_t>(layers));
  TokenWalk walk(rows);
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

using Scattered = IdRows::Scattered;

// Two equal ids in a row or two may have come about by chance in ids that somebody made up.
bool is_no_choice(const Scattered& scattered, std::int64_t k) {
  return scattered.least == scattered.most && (k > 2 || scattered.rows > 2);
}

std::int64_t equal_rows(const IdRows& rows, const std::vector<int>& layers) {
  return std::accumulate(layers.begin(), layers.end(), std::int64_t{0}, [&](std::int64_t sum, int l) {
    return sum + rows.layers[static_cast<std::size_t>(l)].equal;
  });
}

// The rows of one id in layers that are kept, in tokens that have others.
Scattered scattered_rows(const IdRows& rows, const std::vector<int>& layers) {
  Scattered sum;
  for (int l : layers) sum.add(rows.layers[static_cast<std::size_t>(l)].scattered);
  return sum;
}

void note_what_stands(std::int64_t equal, std::int64_t k, RowRules& rules) {
  if (equal > 0)
    rules.notes.push_back(
        fmt::format("{} rows name one id {} times, which no router chooses: read as they stand", equal, k));
}

bool fills(const RowRules& rules, std::int64_t id) {
  return std::ranges::find(rules.fills, id) != rules.fills.end();
}

void note_what_is_left_out(const IdRows& rows, const std::vector<int>& dense, const Scattered& scattered,
                           RowRules& rules) {
  if (!dense.empty())
    rules.notes.push_back(fmt::format(
        "layers {} hold one id throughout and are left out as dense ones; the others are the model's "
        "layers {}",
        to_text(LayerNumbers(dense)), to_text(LayerNumbers(rules.layers))));
  if (rules.blank_tokens_are_absent && rows.blank_tokens > 0)
    rules.notes.push_back(
        fmt::format("{} of {} tokens hold one id throughout: read as tokens without experts",
                    rows.blank_tokens, rows.tokens));
  for (const std::int64_t fill : rules.fills)
    rules.notes.push_back(fmt::format("id {} fills places without an expert", fill));
  if (rules.no_choice && !fills(rules, *rules.no_choice))
    rules.notes.push_back(fmt::format(
        "id {} stands {} times in {} rows, which no router chooses: read as tokens absent from those layers",
        *rules.no_choice, rows.k, scattered.rows));
}

}  // namespace

RowRules rules_of(const IdRows& rows, bool literal, std::optional<int> num_experts, const std::string& file) {
  RowRules rules;
  rules.blank_tokens_are_absent = !literal;
  if (rows.tokens > 0 && rows.chosen_rows() == 0 && !literal && num_experts != 1)
    throw parse_error(file, "", "has no token whose {} ids differ, as those that a router chooses do",
                      rows.k);
  std::vector<int> dense;
  for (std::size_t l = 0; l < rows.layers.size(); ++l)
    (rows.chosen_rows() > 0 && is_dense(rows.layers[l], literal) ? dense : rules.layers)
        .push_back(static_cast<int>(l));
  if (rules.layers.empty()) rules.layers.swap(dense);  // nothing tells one from another
  const Scattered scattered = scattered_rows(rows, rules.layers);
  rules.fills = fills_of(rows, num_experts, file);
  if (!literal && scattered.rows > 0 && rows.chosen_rows() > 0) {
    if (rules.fills.empty() && rows.unchosen) rules.fills.push_back(*rows.unchosen);
    if (is_no_choice(scattered, rows.k) && num_experts != 1) rules.no_choice = scattered.most;
  }
  rules.largest_id = largest_chosen(rows, rules.fills);
  if (!fills(rules, scattered.most) && !rules.no_choice)
    rules.largest_id = std::max(rules.largest_id, scattered.most);
  note_what_is_left_out(rows, dense, scattered, rules);
  if (rules.fills.empty() && !rules.no_choice)
    note_what_stands(literal ? equal_rows(rows, rules.layers) : scattered.rows, rows.k, rules);
  return rules;
}

}  // namespace evenkeel::internal
