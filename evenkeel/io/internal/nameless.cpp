#include "evenkeel/io/internal/nameless.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/array_trace.h"
#include "evenkeel/io/internal/axes.h"
#include "evenkeel/io/internal/id_rows.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/table.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Lengths = std::vector<std::int64_t>;

// Above every model known; what is larger is read where somebody says so, and not offered.
constexpr std::int64_t most_layers_offered = 1024;
constexpr std::int64_t most_top_k_offered = 256;

// What has to be known of numbers to say what they would mean.
struct Facts {
  bool is_floating = false;
  bool are_probabilities = false;  // rows along the last axis sum to 1, and are not whole
  std::int64_t least = 0;
  std::int64_t experts = 1;  // the largest number plus one, those that fill places left aside
  // Of two dimensions: the different numbers of the first column and of the second.
  std::array<std::set<std::int64_t>, 2> columns = {};
};

Facts facts_of_reals(const ArrayFile& file, const ArrayInfo& array) {
  Facts facts{.is_floating = true};
  const DoubleArray reals = read_doubles(file, array.name);
  const auto width = static_cast<std::size_t>(std::max<std::int64_t>(reals.shape.back(), 1));
  bool any_fraction = false;
  for (const double each : reals.values)
    if (each < 0) facts.least = -1;
  facts.are_probabilities = width > 1 && facts.least == 0 && !reals.values.empty();
  for (std::size_t at = 0; at < reals.values.size() && facts.are_probabilities; at += width) {
    double sum = 0;
    for (const double each : std::span(reals.values).subspan(at, width)) {
      any_fraction = any_fraction || each != std::floor(each);
      sum += each;
    }
    facts.are_probabilities = facts.are_probabilities && std::abs(sum - 1) < 0.01;
  }
  facts.are_probabilities = facts.are_probabilities && any_fraction;
  return facts;
}

Facts facts_of(const ArrayFile& file, const ArrayInfo& array) {
  if (is_floating(array.dtype)) return facts_of_reals(file, array);
  Facts facts;
  const auto reader = file.reader(array.name);
  const bool has_columns = array.shape.size() == 2 && array.shape.back() <= most_top_k_offered;
  std::vector<std::int64_t> block(std::size_t{1} << 16);
  for (std::int64_t first = 0; first < array.num_elements; first += std::ssize(block)) {
    block.resize(static_cast<std::size_t>(std::min(std::ssize(block), array.num_elements - first)));
    reader->read(first, block);
    for (std::size_t i = 0; i < block.size(); ++i) {
      const std::int64_t number = block[i];
      facts.least = std::min(facts.least, number);
      if (!is_filler(number)) facts.experts = std::max(facts.experts, number + (number < max_trace_experts));
      const std::int64_t column = has_columns ? (first + static_cast<std::int64_t>(i)) % array.shape[1] : 2;
      if (column < 2 && facts.columns[static_cast<std::size_t>(column)].size() <= max_trace_experts)
        facts.columns[static_cast<std::size_t>(column)].insert(number);
    }
  }
  return facts;
}

// What numbers of this shape would mean in an order, or nothing where they cannot be in it.
std::string meaning(const Order& order, const Lengths& shape, const Facts& facts) {
  const auto of = [&](std::string_view name) { return order.length(shape, name); };
  if (order.num_axes() != std::ssize(shape) || of("layers") > most_layers_offered ||
      std::ranges::find(shape, 0) != shape.end())
    return "";
  if (order.is_of_tokens) {
    const bool ids = !facts.is_floating && facts.least >= no_expert && facts.experts <= max_trace_experts;
    if (!ids || of("k") > most_top_k_offered) return "";
    return fmt::format("{} of {}, {}, top-{}", counted(of("layers"), "layer"),
                       counted(facts.experts, "expert"), counted(of("tokens"), "token"), of("k"));
  }
  const std::int64_t experts =
      order.axes.starts_with("layers,ranks") ? of("ranks") * of("experts") : of("experts");
  if (facts.least < 0 || experts > max_trace_experts) return "";
  if (order.is_of_one_step)
    return of("ranks") > 1
               ? fmt::format("{} on {}", counted(experts, "expert"), counted(of("ranks"), "source rank"))
               : counted(experts, "expert") + " of one step";
  std::string layers = fmt::format("{} of {}", counted(of("layers"), "layer"), counted(experts, "expert"));
  if (order.axes.starts_with("steps")) return fmt::format("{} of {}", counted(of("steps"), "step"), layers);
  if (order.axes == "layers,experts") return layers;
  return fmt::format("{} on {}", layers, counted(of("ranks"), "rank"));
}

// Lines of a layer, perhaps of a token, and its ids or counts.
std::string column_meanings(const Lengths& shape, const Facts& facts) {
  const auto are_layers = [](const std::set<std::int64_t>& numbers) {
    return !numbers.empty() && *numbers.begin() >= 0 && *numbers.rbegin() < most_layers_offered;
  };
  std::vector<std::string> all;
  const auto of_tokens = [&](const char* columns, std::size_t layer, std::int64_t before) {
    if (are_layers(facts.columns[layer]) && facts.least >= no_expert && shape[1] > before)
      all.push_back(fmt::format("{}: {}, {}, top-{}", columns,
                                counted(std::ssize(facts.columns[layer]), "layer"), counted(shape[0], "line"),
                                shape[1] - before));
  };
  of_tokens("layer,k...", 0, 1);
  of_tokens("token,layer,k...", 1, 2);
  if (are_layers(facts.columns[0]) && facts.least >= 0 && shape[1] > 2)
    all.push_back(fmt::format("layer,experts...: {} of {}", counted(std::ssize(facts.columns[0]), "layer"),
                              counted(shape[1] - 1, "expert")));
  if (are_layers(facts.columns[0]) && facts.least >= 0 && shape[1] == 3)
    all.push_back(
        fmt::format("layer,expert,count: {} of {}", counted(std::ssize(facts.columns[0]), "layer"),
                    counted(facts.columns[1].empty() ? 0 : *facts.columns[1].rbegin() + 1, "expert")));
  return fmt::format("{}", fmt::join(all, "; "));
}

[[noreturn]] void refuse_probabilities(const ArrayFile& file, const ArrayInfo& array) {
  throw parse_error(file.name(), array.name,
                    "every row of the {} numbers sums to 1: these are probabilities of tokens, not counts; "
                    "record the ids that the router chose, or count them{}",
                    to_text(array.shape),
                    array.shape.size() == 2 ? "; shares of each layer's load are axes layers,experts" : "");
}

class Question {
 public:
  Question(const ArrayFile& file, const ArrayInfo& array, const ReadOptions& options)
      : file_(file), array_(array), options_(options) {}

  // The order that options say, or the model; throws the question where neither does.
  std::string answer() const {
    if (is_short_form(options_.axes)) return usual_order(options_.axes == "trace");
    if (!options_.axes.empty()) return options_.axes;
    const Facts facts = facts_of(file_, array_);
    if (options_.model)
      if (const std::string axes = order_of_model(facts); !axes.empty()) return axes;
    if (facts.are_probabilities) refuse_probabilities(file_, array_);
    if (facts.is_floating && facts.least < 0)
      throw parse_error(
          file_.name(), array_.name,
          "has fractions below 0, as logits have; record the ids that the router chose, or count them");
    ask(facts);
  }

 private:
  std::string usual_order(bool of_tokens) const {
    if (array_.shape.size() == 3) return of_tokens ? "tokens,layers,k" : "steps,layers,experts";
    return of_tokens ? "tokens,k" : "layers,experts";
  }

  // The only order in which the numbers have the model's sizes.
  std::string order_of_model(const Facts& facts) const {
    const ModelLayers& model = *options_.model;
    std::string found;
    for (const Order& order : orders) {
      if (order.is_of_one_step || meaning(order, array_.shape, facts).empty()) continue;
      const auto of = [&](std::string_view name) { return order.length(array_.shape, name); };
      const std::int64_t layers = of("layers");
      if (layers != std::ssize(model.moe_layers) && layers != model.num_hidden_layers &&
          layers != std::ssize(model.all_layers()))
        continue;
      const std::int64_t experts = of("ranks") * of("experts");
      if (order.is_of_tokens
              ? of("k") != model.top_k || (model.num_experts > 0 && facts.experts > model.num_experts)
              : experts != model.num_experts)
        continue;
      if (!found.empty()) return "";
      found = order.axes;
    }
    return found;
  }

  [[noreturn]] void ask(const Facts& facts) const {
    std::vector<std::string> readings;
    for (const Order& order : orders)
      if (const std::string text = meaning(order, array_.shape, facts);
          !text.empty() && (options_.one_step || !order.is_of_one_step))
        readings.push_back(fmt::format("{}: {}", order.axes, text));
    if (array_.shape.size() == 2 && !facts.is_floating)
      if (const std::string columns = column_meanings(array_.shape, facts); !columns.empty())
        readings.push_back("or columns " + columns);
    const std::string name =
        array_.name.empty() ? "" : fmt::format("'{}' is no name that says it; ", array_.name);
    if (readings.empty())
      throw parse_error(file_.name(), array_.name,
                        "shape {} is neither counts, [layers, experts] or [steps, layers, experts], nor ids, "
                        "[tokens, layers, k] or [tokens, k]",
                        to_text(array_.shape));
    throw InvalidArgument(
        "axes",
        fmt::format("{}: {}nobody says what its {} numbers are", file_.name(), name, to_text(array_.shape)),
        fmt::format("{}; or a name in the file, such as topk_ids, counts or physical_to_logical_map",
                    fmt::join(readings, "; ")));
  }

  const ArrayFile& file_;
  const ArrayInfo& array_;
  const ReadOptions& options_;
};

FoundRouting ids_in_order(const ArrayFile& file, const ArrayInfo& array, const Order& order,
                          const ReadOptions& options) {
  TraceInfo info;
  info.name = file.name();
  auto ids = in_usual_order(file, array, order.axes);
  take_ids_shape(ids->info().shape, file.name(), array.name, info);
  auto trace = open_array_trace(std::move(info), std::move(ids), nullptr, IdsAre::said, options.num_experts);
  return {.kind = "trace", .format = {}, .content = FoundTrace{std::move(trace)}};
}

FoundRouting counts_in_order(const ArrayFile& file, const ArrayInfo& array, std::string_view axes,
                             CountRows rows) {
  const auto found = [&](auto numbers) {
    if (axes == "layers,ranks,experts" && array.num_elements > 0)
      numbers.shape = {numbers.shape[0], numbers.shape[1] * numbers.shape[2]};
    return found_counts(std::move(numbers), file.name(), array.name, rows);
  };
  return is_floating(array.dtype) ? found(read_doubles(file, array.name))
                                  : found(read_integers(file, array.name));
}

FoundRouting read_as(std::string_view axes, const ArrayFile& file, const ArrayInfo& array,
                     const ReadOptions& options) {
  const Order& order = checked_order(axes, array.shape, options.one_step, file.name());
  if (order.is_of_tokens) return ids_in_order(file, array, order, options);
  if (order.is_of_one_step) {
    IntArray loads = read_whole_numbers(file, array.name);
    require_loads(loads.values, file.name(), array.name);
    if (loads.values.empty()) throw ParseError(file.name(), array.name, "is empty");
    return {.kind = "loads", .format = {}, .content = FoundStep{std::move(loads)}};
  }
  return counts_in_order(file, array, axes, CountRows::unsaid);
}

// The lines of an array of two dimensions as those of a table.
std::string table_text(const ArrayFile& file, const ArrayInfo& array) {
  if (array.shape.size() != 2)
    throw InvalidArgument(
        "columns",
        fmt::format("{} has {} numbers, and a table has two dimensions", file.name(), to_text(array.shape)),
        "axes");
  std::string text;
  const auto append = [&](const auto& numbers) {
    for (std::size_t i = 0; i < numbers.values.size(); ++i)
      fmt::format_to(std::back_inserter(text), "{}{}", numbers.values[i],
                     (static_cast<std::int64_t>(i) + 1) % array.shape[1] == 0 ? '\n' : ',');
  };
  is_floating(array.dtype) ? append(read_doubles(file, array.name)) : append(read_integers(file, array.name));
  return text;
}

}  // namespace

FoundRouting nameless(const ArrayFile& file, const ArrayInfo& array, const ReadOptions& options) {
  if (array.shape.empty()) throw ParseError(file.name(), array.name, "is one number, and no routing");
  if (!options.columns.empty()) {
    FoundRouting found = find_in_table(table_text(file, array), file.name(), options);
    found.format.clear();
    return found;
  }
  const std::string axes = Question(file, array, options).answer();
  const bool sum_to_1 = is_floating(array.dtype) && facts_of_reals(file, array).are_probabilities;
  if (sum_to_1 && axes != "layers,experts") refuse_probabilities(file, array);
  FoundRouting found = read_as(axes, file, array, options);
  found.axes = axes;
  found.notes.insert(found.notes.begin(), fmt::format("read as {}: {}", axes, meaning_of(found)));
  if (sum_to_1)
    found.notes.push_back(
        "every layer's numbers sum to 1: taken for its experts' shares of the load, not for "
        "probabilities of a token");
  return found;
}

FoundRouting named_counts(const ArrayFile& file, const ArrayInfo& array, CountRows rows,
                          const ReadOptions& options) {
  const Order* order = find_order(options.axes);
  if (order == nullptr || order->is_of_tokens || order->is_of_one_step)
    return counts_in_order(file, array, "", rows);
  checked_order(options.axes, array.shape, false, file.name());
  FoundRouting found = counts_in_order(file, array, options.axes, rows);
  found.axes = options.axes;
  found.notes.insert(found.notes.begin(), fmt::format("read as {}: {}", found.axes, meaning_of(found)));
  return found;
}

template <class Number>
ArrayFile file_of(WholeArray<Number> array, const std::string& file, const std::string& name) {
  ArrayInfo info{.name = name,
                 .dtype = std::is_same_v<Number, double> ? Dtype::f64 : Dtype::i64,
                 .shape = array.shape,
                 .num_elements = std::ssize(array.values)};
  const auto held = std::make_shared<const std::vector<Number>>(std::move(array.values));
  const auto open = [held]() -> ArrayReader::Fetch {
    return [held](std::int64_t first_byte, std::span<std::byte> out) {
      const auto bytes = std::as_bytes(std::span(*held));
      std::ranges::copy(bytes.subspan(static_cast<std::size_t>(first_byte), out.size()), out.begin());
    };
  };
  return ArrayFile(file, FileFormat::npy, std::numeric_limits<std::int64_t>::max(),
                   {{std::move(info), open}});
}

template <class Number>
FoundRouting nameless(WholeArray<Number> array, const std::string& file, const ReadOptions& options) {
  const ArrayFile held = file_of(std::move(array), file);
  return nameless(held, held.arrays().front(), options);
}

template ArrayFile file_of(IntArray, const std::string&, const std::string&);
template ArrayFile file_of(DoubleArray, const std::string&, const std::string&);
template FoundRouting nameless(IntArray, const std::string&, const ReadOptions&);
template FoundRouting nameless(DoubleArray, const std::string&, const ReadOptions&);

}  // namespace evenkeel::internal
