// How the lines of a table of counts are added up.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/count_table.h"
#include "evenkeel/io/internal/fractional_loads.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/routing/trace.h"

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

void CountTableBuilder::Cells::add(const TableNumber& number) {
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

CountTableBuilder::CountTableBuilder(TableColumns columns, std::string file)
    : columns_(std::move(columns)), file_(std::move(file)) {}

void CountTableBuilder::add(const CellTexts& cells, std::int64_t line) {
  line_ = line;
  Row row{.layer = static_cast<int>(rows_.size()), .line = line};
  if (columns_.layer)
    row.layer = id(cells, *columns_.layer, max_layers, "layer number");
  else if (columns_.is_long() || !columns_.layers.empty() || has_lines_apart())
    row.layer = 0;
  if (columns_.expert)
    row.expert = id(cells, *columns_.expert, max_trace_experts, "expert id");
  else if (!columns_.layers.empty())
    row.expert = static_cast<int>(rows_.size());
  row.step = place_of(cells, columns_.steps, steps_);
  row.part = place_of(cells, columns_.parts, parts_);
  rows_.push_back(row);
  for (std::size_t column : columns_.counts) cells_.add(count(cells, column));
}

CountTable CountTableBuilder::table(std::optional<int> num_experts, bool keep_steps) {
  if (columns_.layer_is_index && layers_count_up()) drop_index();
  require_no_doubles();
  if (columns_.expert) require_expert_zero(num_experts);
  const std::vector<int> layers = layers_of_rows();
  const std::size_t experts = num_experts_of(num_experts);
  const bool by_step = keep_steps && !columns_.steps.empty();
  const std::size_t steps = by_step ? steps_.size() : 1;
  require_dense_enough(layers.size(), experts, steps);
  CountTable made{.counts = {.shape = {std::ssize(layers), static_cast<std::int64_t>(experts)}, .values = {}},
                  .layers = {},
                  .notes = {}};
  if (by_step) made.counts.shape.insert(made.counts.shape.begin(), static_cast<std::int64_t>(steps));
  if (cells_.fractional) {
    ScaledLoads scaled = scaled_loads(sums(cells_.reals, layers, experts, steps), file_, "");
    scaled.note_in(made.notes);
    made.counts.values = std::move(scaled.loads);
  } else {
    made.counts.values = sums(cells_.wholes, layers, experts, steps);
  }
  const bool numbered = columns_.layer && !columns_.layer_is_order;
  if (numbered || !columns_.layers.empty()) made.layers = layers;
  return made;
}

TableNumber CountTableBuilder::number(const CellTexts& cells, std::size_t column) const {
  const std::string_view cell = cells[column];
  if (cell.empty()) refuse(column, "is blank");
  if (const auto number = number_of_text(cell)) return *number;
  refuse(column, "{}", not_a_number(cell));
}

TableNumber CountTableBuilder::count(const CellTexts& cells, std::size_t column) const {
  const TableNumber made = number(cells, column);
  if (made.real < 0) refuse(column, "is {}; a count is 0 or more", cells[column]);
  return made;
}

int CountTableBuilder::id(const CellTexts& cells, std::size_t column, std::int64_t end,
                          const char* what) const {
  const TableNumber made = number(cells, column);
  if (!made.is_whole || made.whole < 0 || made.whole >= end)
    refuse(column, "'{}' is no {} in 0..{}", cells[column], what, end - 1);
  return static_cast<int>(made.whole);
}

int CountTableBuilder::place_of(const CellTexts& cells, const std::vector<std::size_t>& columns,
                                Texts& texts) {
  if (columns.empty()) return 0;
  std::string key;
  for (std::size_t column : columns) key.append(cells[column]).push_back('\0');
  return texts.try_emplace(std::move(key), static_cast<int>(texts.size())).first->second;
}

bool CountTableBuilder::layers_count_up() const {
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].layer != static_cast<int>(i)) return false;
  return true;
}

// An index says nothing: lines are layers, or those of one layer.
void CountTableBuilder::drop_index() {
  columns_.layer.reset();
  if (!has_lines_apart()) return;
  for (Row& row : rows_) row.layer = 0;
}

void CountTableBuilder::require_no_doubles() const {
  std::vector<std::size_t> order(rows_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](std::size_t i) {
    return std::tie(rows_[i].layer, rows_[i].expert, rows_[i].step, rows_[i].part);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (key(order[i]) == key(order[i - 1])) refuse_double(rows_[order[i - 1]], rows_[order[i]]);
}

void CountTableBuilder::refuse_double(const Row& first, const Row& second) const {
  std::string what = columns_.layer ? fmt::format("layer {}", first.layer) : "";
  if (columns_.expert) what += fmt::format("{}expert {}", what.empty() ? "" : ", ", first.expert);
  if (what.empty()) what = "the same step";
  throw parse_error(file_, fmt::format("line {}", second.line), "{} is in line {} already, and {}", what,
                    first.line,
                    has_lines_apart() ? "both are of the same step or rank"
                                      : "no column such as step, rank or forward_pass tells them apart");
}

// An expert that nobody chose has no line. So without a line of expert 0, ids may begin with 1, or nobody
// chose expert 0.
void CountTableBuilder::require_expert_zero(std::optional<int> num_experts) const {
  const auto least = std::min_element(rows_.begin(), rows_.end(),
                                      [](const Row& a, const Row& b) { return a.expert < b.expert; });
  if (num_experts || least->expert == 0) return;
  throw InvalidArgument(
      "num_experts",
      fmt::format("is not given, and {} has no line of expert 0: its ids may begin with {}, or nobody "
                  "chose the experts before",
                  file_, least->expert),
      "how many experts there are, if their ids begin with 0; else number them so");
}

std::vector<int> CountTableBuilder::layers_of_rows() const {
  std::vector<int> layers = columns_.layers;
  if (layers.empty())
    for (const Row& row : rows_) layers.push_back(row.layer);
  std::sort(layers.begin(), layers.end());
  const auto twice = std::adjacent_find(layers.begin(), layers.end());
  if (!columns_.layers.empty() && twice != layers.end())
    throw parse_error(file_, "", "two columns are of layer {}", *twice);
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

std::size_t CountTableBuilder::num_experts_of(std::optional<int> num_experts) const {
  if (!columns_.is_long() && columns_.layers.empty()) return columns_.counts.size();
  int most = 0;
  for (const Row& row : rows_) most = std::max(most, row.expert + 1);
  if (num_experts && *num_experts < most)
    throw InvalidArgument("num_experts",
                          fmt::format("{}, but {} has expert {}", *num_experts, file_, most - 1),
                          fmt::format("{} or more", most));
  return static_cast<std::size_t>(num_experts.value_or(most));
}

// A few lines may name ids as large as they like.
void CountTableBuilder::require_dense_enough(std::size_t layers, std::size_t experts,
                                             std::size_t steps) const {
  const std::size_t most = (std::size_t{1} << 20) + 64 * cells_.size();
  if (layers * experts > most) throw ParseError(file_, "", "has few counts for so many layers and experts");
  if (layers * experts * steps > most)
    throw parse_error(file_, "",
                      "has few counts for {} steps of {} layers of {} experts; add several steps up "
                      "to one",
                      steps, layers, experts);
}

template <class Number>
std::vector<Number> CountTableBuilder::sums(const std::vector<Number>& cells, const std::vector<int>& layers,
                                            std::size_t experts, std::size_t steps) const {
  std::vector<Number> sums(steps * layers.size() * experts, Number{0});
  const std::size_t width = columns_.counts.size();
  const bool lines_are_experts = columns_.is_long() || !columns_.layers.empty();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    for (std::size_t j = 0; j < width; ++j) {
      const int layer = columns_.layers.empty() ? rows_[i].layer : columns_.layers[j];
      const std::size_t step = steps > 1 ? static_cast<std::size_t>(rows_[i].step) : 0;
      const auto row =
          static_cast<std::size_t>(std::lower_bound(layers.begin(), layers.end(), layer) - layers.begin());
      const std::size_t expert = lines_are_experts ? static_cast<std::size_t>(rows_[i].expert) : j;
      if (!add_to(sums[(step * layers.size() + row) * experts + expert], cells[i * width + j]))
        throw ParseError(file_, "", "the total of loads is above 2^63-1");
    }
  }
  return sums;
}

}  // namespace evenkeel::internal
