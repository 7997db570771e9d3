// How the lines of a table are added up, or put together as tokens.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/table.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

bool add_to(double& sum, double value) {
  sum += value;
  return true;
}

bool add_to(std::int64_t& sum, std::int64_t value) {
  return !__builtin_add_overflow(sum, value, &sum);
}

}  // namespace

void NamedTable::Numbers::add(const TableNumber& number) {
  if (!number.is_whole && !fractional) {
    reals.assign(wholes.begin(), wholes.end());
    std::vector<std::int64_t>().swap(wholes);
    fractional = true;
  }
  if (fractional)
    reals.push_back(number.real);
  else
    wholes.push_back(number.whole);
}

NamedTable::NamedTable(TableColumns columns, std::string file)
    : columns_(std::move(columns)), file_(std::move(file)) {}

void NamedTable::add(const Cells& cells, std::int64_t line) {
  line_ = line;
  const bool lines_are_layers =
      !columns_.layer && !columns_.lines_are_experts() && columns_.choices.empty() && !has_lines_apart();
  Row row{.layer = lines_are_layers ? static_cast<int>(rows_.size()) : 0, .line = line};
  if (columns_.layer) row.layer = id(cells, *columns_.layer, 0, max_layers, "layer number");
  if (columns_.expert)
    row.expert = id(cells, *columns_.expert, 0, max_trace_experts, "expert id");
  else if (!columns_.layers.empty())
    row.expert = static_cast<int>(rows_.size());
  row.step = place_of(cells, columns_.steps, steps_);
  row.part = place_of(cells, columns_.parts, parts_);
  if (columns_.token) row.token = place_of(cells, {*columns_.token}, tokens_);
  if (columns_.index && !columns_.expert && !columns_.token)
    row.token = id(cells, *columns_.index, 0, std::numeric_limits<int>::max(), "number of a line");
  rows_.push_back(row);
  for (std::size_t column : columns_.choices)
    numbers_.wholes.push_back(id(cells, column, no_expert, max_trace_experts, "expert id"));
  for (std::size_t column : columns_.counts) {
    const TableNumber made = number(cells, column);
    if (made.real < 0) refuse(column, "is {}; a count is 0 or more", cells[column]);
    numbers_.add(made);
  }
}

FoundRouting NamedTable::found(const ReadOptions& options) {
  require_index();
  if (!columns_.choices.empty()) return tokens(options);
  return counts(options);
}

TableNumber NamedTable::number(const Cells& cells, std::size_t column) const {
  const std::string_view cell = cells[column];
  if (cell.empty()) refuse(column, "is blank");
  if (const auto number = number_of_text(cell)) return *number;
  refuse(column, "{}", not_a_number(cell));
}

int NamedTable::id(const Cells& cells, std::size_t column, std::int64_t least, std::int64_t end,
                   const char* what) const {
  const TableNumber made = number(cells, column);
  if (!made.is_whole || made.whole < least || made.whole >= end)
    refuse(column, "'{}' is no {} in {}..{}", cells[column], what, least, end - 1);
  return static_cast<int>(made.whole);
}

int NamedTable::place_of(const Cells& cells, const std::vector<std::size_t>& columns, Texts& texts) {
  if (columns.empty()) return 0;
  std::string key;
  for (std::size_t column : columns) key.append(cells[column]).push_back('\0');
  return texts.try_emplace(std::move(key), static_cast<int>(texts.size())).first->second;
}

// A column without a name means nothing where it only counts the lines; else it may be the layer.
void NamedTable::require_index() const {
  if (!columns_.index || columns_.layer || columns_.expert || columns_.token) return;
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].token != static_cast<int>(i))
      throw parse_error(
          file_, fmt::format("line {}, column 1", rows_[i].line),
          "the column has no name and does not count the lines; call it 'layer' if it is the layer");
}

void NamedTable::require_no_doubles() const {
  std::vector<std::size_t> order(rows_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](std::size_t i) {
    return std::tie(rows_[i].layer, rows_[i].expert, rows_[i].step, rows_[i].part);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (key(order[i]) != key(order[i - 1])) continue;
    const Row &first = rows_[order[i - 1]], &second = rows_[order[i]];
    std::string what = columns_.layer ? fmt::format("layer {}", first.layer) : "";
    if (columns_.expert) what += fmt::format("{}expert {}", what.empty() ? "" : ", ", first.expert);
    if (what.empty()) what = "the same step";
    throw parse_error(
        file_, fmt::format("line {}", second.line), "{} is in line {} already, and {}", what, first.line,
        has_lines_apart() ? "both are of the same step or rank"
        : columns_.lines_are_experts()
            ? "no column such as step, rank or forward_pass tells them apart"
            : "no column such as step, rank or forward_pass tells them apart; ids of tokens go by "
              "the names 'k_0', 'k_1', ...");
  }
}

// An expert that nobody chose has no line. So without a line of expert 0, ids may begin with 1, or nobody
// chose expert 0.
void NamedTable::require_expert_zero(const ReadOptions& options) const {
  if (!columns_.expert || options.num_experts) return;
  const int least = std::ranges::min(rows_, {}, &Row::expert).expert;
  if (least == 0) return;
  throw InvalidArgument(
      "num_experts",
      fmt::format("is not given, and {} has no line of expert 0: its ids may begin with {}, or nobody "
                  "chose the experts before",
                  file_, least),
      "how many experts there are, if their ids begin with 0; else number them so");
}

std::vector<int> NamedTable::layers_of_rows() const {
  std::vector<int> layers = columns_.layers;
  if (layers.empty())
    for (const Row& row : rows_) layers.push_back(row.layer);
  std::ranges::sort(layers);
  const auto twice = std::ranges::adjacent_find(layers);
  if (!columns_.layers.empty() && twice != layers.end())
    throw parse_error(file_, "", "two columns are of layer {}", *twice);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

std::size_t NamedTable::num_experts_of(const ReadOptions& options) const {
  if (!columns_.lines_are_experts()) return columns_.counts.size();
  const int most = std::ranges::max(rows_, {}, &Row::expert).expert + 1;
  if (options.num_experts.value_or(most) < most)
    throw InvalidArgument("num_experts",
                          fmt::format("{}, but {} has expert {}", *options.num_experts, file_, most - 1),
                          fmt::format("{} or more", most));
  return static_cast<std::size_t>(options.num_experts.value_or(most));
}

// A few lines may name ids as large as they like.
void NamedTable::require_dense_enough(std::size_t layers, std::size_t experts, std::size_t steps) const {
  const std::size_t most = (std::size_t{1} << 20) + 64 * numbers_.size();
  if (layers * experts > most) throw ParseError(file_, "", "has few counts for so many layers and experts");
  if (layers * experts * steps > most)
    throw parse_error(file_, "",
                      "has few counts for {} steps of {} layers of {} experts; add several steps up to one",
                      steps, layers, experts);
}

template <class Number>
std::vector<Number> NamedTable::sums(const std::vector<Number>& cells, const std::vector<int>& layers,
                                     std::size_t experts, std::size_t steps) const {
  std::vector<Number> sums(steps * layers.size() * experts, Number{0});
  const std::size_t width = columns_.counts.size();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    for (std::size_t j = 0; j < width; ++j) {
      const int layer = columns_.layers.empty() ? rows_[i].layer : columns_.layers[j];
      const std::size_t step = steps > 1 ? static_cast<std::size_t>(rows_[i].step) : 0;
      const auto row = static_cast<std::size_t>(std::ranges::lower_bound(layers, layer) - layers.begin());
      const std::size_t expert = columns_.lines_are_experts() ? static_cast<std::size_t>(rows_[i].expert) : j;
      if (!add_to(sums[(step * layers.size() + row) * experts + expert], cells[i * width + j]))
        throw ParseError(file_, "", "the total of loads is above 2^63-1");
    }
  }
  return sums;
}

FoundRouting NamedTable::counts(const ReadOptions& options) const {
  require_no_doubles();
  require_expert_zero(options);
  const std::vector<int> layers = layers_of_rows();
  const std::size_t experts = num_experts_of(options);
  const bool by_step = options.keeps_steps() && !columns_.steps.empty();
  const std::size_t steps = by_step ? steps_.size() : 1;
  require_dense_enough(layers.size(), experts, steps);
  std::vector<std::int64_t> shape = {std::ssize(layers), static_cast<std::int64_t>(experts)};
  if (by_step) shape.insert(shape.begin(), static_cast<std::int64_t>(steps));
  // Layers that have numbers and no assignment are dense.
  const CountRows rows = has_numbers() ? CountRows::hidden_layers : CountRows::unsaid;
  FoundRouting found =
      numbers_.fractional
          ? found_counts(DoubleArray{shape, sums(numbers_.reals, layers, experts, steps)}, file_, "", rows)
          : found_counts(IntArray{shape, sums(numbers_.wholes, layers, experts, steps)}, file_, "", rows);
  if (has_numbers()) std::get<FoundCounts>(found.content).layers = LayerNumbers(layers);
  return found;
}

// Without a column that says it, the n-th line of a layer, in a step and rank, is of the n-th token. A line
// too few would give all that follow to another token.
void NamedTable::number_tokens() {
  std::map<std::tuple<int, int, int>, int> seen;
  for (Row& row : rows_) row.token = seen[{row.step, row.part, row.layer}]++;
  std::map<std::pair<int, int>, std::pair<int, int>> layers;  // of a step and rank, one layer and its lines
  for (const auto& [key, lines] : seen) {
    const auto& [step, part, layer] = key;
    const auto [other, fresh] = layers.try_emplace({step, part}, layer, lines);
    if (!fresh && other->second.second != lines)
      throw parse_error(
          file_, "",
          "has {} lines of layer {} and {} of layer {}, and no column of tokens: nobody knows which "
          "lines are of one token",
          other->second.second, other->second.first, lines, layer);
  }
}

FoundRouting NamedTable::tokens(const ReadOptions& options) {
  if (!columns_.token) number_tokens();
  const std::vector<int> layers = layers_of_rows();
  const std::size_t k = columns_.choices.size();
  // Tokens of a step go together, in the order in which they are met.
  std::map<int, std::map<std::pair<int, int>, std::size_t>> by_step;
  for (const Row& row : rows_) by_step[row.step].try_emplace({row.part, row.token}, 0);
  TokenIds all{.ids = {}, .layers = layers, .top_k = static_cast<int>(k), .steps = {}};
  std::size_t num_tokens = 0;
  for (auto& [step, tokens] : by_step) {
    const auto begin = static_cast<std::int64_t>(num_tokens);
    for (auto& [token, place] : tokens) place = num_tokens++;
    all.steps.push_back({{begin, static_cast<std::int64_t>(num_tokens)}});
  }
  if (columns_.steps.empty()) all.steps.clear();
  require_dense_enough(layers.size(), k, num_tokens);
  all.ids.assign(num_tokens * layers.size() * k, no_expert);
  std::vector<std::int64_t> line_of(num_tokens * layers.size(), 0);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const auto layer = static_cast<std::size_t>(std::ranges::lower_bound(layers, row.layer) - layers.begin());
    const std::size_t place = by_step[row.step][{row.part, row.token}] * layers.size() + layer;
    if (std::int64_t& line = line_of[place]; std::exchange(line, row.line) != 0)
      throw parse_error(
          file_, fmt::format("line {}", row.line),
          "has a layer of a token that a line before has too; nothing such as a step tells them apart");
    for (std::size_t j = 0; j < k; ++j)
      all.ids[place * k + j] = static_cast<std::int32_t>(numbers_.wholes[i * k + j]);
  }
  FoundRouting found = found_tokens(std::move(all), options.num_experts, file_);
  if (!has_numbers()) std::get<FoundTrace>(found.content).reader->set_layers({});
  return found;
}

}  // namespace evenkeel::internal
