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
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/table.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Lengths = std::vector<std::int64_t>;

struct Order {
  std::string_view axes;      // "tokens,layers,k"
  std::string_view meaning;   // a format text; {layers} becomes "3 layers"
  bool is_of_tokens = false;  // ids, else counts
  bool is_of_one_step = false;

  std::ptrdiff_t num_axes() const { return std::ranges::count(axes, ',') + 1; }
  // The length of the axis with this name; 1 if there is none.
  std::int64_t length(const Lengths& shape, std::string_view axis) const {
    std::string_view rest = axes;
    for (const std::int64_t each : shape) {
      const std::string_view name = rest.substr(0, rest.find(','));
      if (name == axis) return each;
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    }
    return 1;
  }
};

constexpr std::string_view token_ids = "{layers} of {experts}, {tokens}, top-{k}";
constexpr std::array<Order, 9> orders = {{{"tokens,layers,k", token_ids, true},
                                          {"tokens,k,layers", token_ids, true},
                                          {"layers,tokens,k", token_ids, true},
                                          {"tokens,k", token_ids, true},
                                          {"layers,experts", "{layers} of {experts}"},
                                          {"steps,layers,experts", "{steps} of {layers} of {experts}"},
                                          {"layers,ranks,experts", "{layers} of {experts} on {ranks}"},
                                          {"experts", "{experts} of one step", false, true},
                                          {"ranks,experts", "{experts} on {source_ranks}", false, true}}};

// nullptr if there is no such order.
const Order* find_order(std::string_view axes) {
  const auto found = std::ranges::find(orders, axes, &Order::axes);
  return found == orders.end() ? nullptr : &*found;
}

// Throws InvalidArgument if `axes` is not a known order, its number of dimensions does not fit the shape, or
// it is an order for one step and the caller does not want that.
const Order& checked_order(std::string_view axes, const Lengths& shape, bool one_step,
                           const std::string& file) {
  const Order* order = find_order(axes);
  if (order == nullptr) {
    std::vector<std::string_view> names;
    for (const Order& each : orders) names.push_back(each.axes);
    throw InvalidArgument("axes", fmt::format("'{}'", axes), fmt::format("{}", fmt::join(names, "; ")));
  }
  if (order->is_of_one_step && !one_step)
    throw InvalidArgument("axes", fmt::format("{} is an order without layers, but layers are needed", axes),
                          "an order with layers, such as layers,experts");
  if (order->num_axes() != std::ssize(shape))
    throw InvalidArgument(
        "axes",
        fmt::format("{}, but {} has {} dimension{}: {}", axes, file, shape.size(),
                    shape.size() == 1 ? "" : "s", to_text(shape)),
        fmt::format("an order of {} dimension{}", shape.size(), shape.size() == 1 ? "" : "s"));
  return *order;
}

}  // namespace

bool is_short_form(std::string_view axes) {
  return axes == "trace" || axes == "counts";
}

bool is_order_of_tokens(std::string_view axes) {
  const Order* order = find_order(axes);
  return order != nullptr && order->is_of_tokens;
}

bool is_order_of_counts(std::string_view axes) {
  const Order* order = find_order(axes);
  return order != nullptr && !order->is_of_tokens;
}

void require_layer_order(const std::vector<std::int64_t>& shape, const std::string& file,
                         const std::string& key) {
  constexpr std::int64_t most_layers = 256;
  if (shape.size() != 3 || shape[1] <= most_layers || shape[0] > most_layers) return;
  throw InvalidArgument(
      "axes",
      fmt::format("{}: {}: shape {} has {} layers in the middle, more than any model", file, key,
                  to_text(shape), shape[1]),
      "the order of the dimensions, such as layers,tokens,k for ids; counts need layers second");
}

std::unique_ptr<ArrayReader> in_usual_order(const ArrayFile& file, const ArrayInfo& array,
                                            std::string_view axes) {
  if (axes.empty()) return file.reader(array.name);
  const Order& order = checked_order(axes, array.shape, false, file.name());
  const std::int64_t tokens = order.length(array.shape, "tokens");
  const std::int64_t layers = order.length(array.shape, "layers");
  const std::int64_t k = order.length(array.shape, "k");
  if (axes == "tokens,layers,k" || axes == "tokens,k") return file.reader(array.name);
  ArrayInfo info = array;
  info.shape = {tokens, layers, k};
  // Each layer has its own reader, since a compressed array can only be read forwards.
  const bool by_layer = axes.starts_with("layers");
  const std::int64_t num_readers = by_layer ? layers : 1;
  if (num_readers > max_layers)
    throw parse_error(file.name(), array.name, "shape {} has {} layers; at most {} are read",
                      to_text(array.shape), layers, max_layers);
  if (layers * k < 1 || layers * k > max_trace_assignments_per_token)
    throw parse_error(file.name(), array.name,
                      "shape {} has {} x {} assignments a token (layers x k); allowed: 1..{}",
                      to_text(array.shape), layers, k, max_trace_assignments_per_token);
  std::vector<std::shared_ptr<ArrayReader::Fetch>> readers;
  for (std::int64_t i = 0; i < num_readers; ++i)
    readers.push_back(std::make_shared<ArrayReader::Fetch>(file.fetch(array.name)));
  const std::int64_t size = item_size(array.dtype);
  const std::int64_t of_token = layers * k * size;
  return std::make_unique<ArrayReader>(
      file.name(), info, [=](std::int64_t first_byte, std::span<std::byte> out) {
        // Reads whole tokens, in stored order, and reorders them to [tokens, layers, k].
        const std::int64_t begin = first_byte / of_token;
        const std::int64_t count = (first_byte + std::ssize(out) + of_token - 1) / of_token - begin;
        std::vector<std::byte> stored(static_cast<std::size_t>(count * of_token)), usual(stored.size());
        const std::size_t of_reader = stored.size() / readers.size();
        for (std::size_t i = 0; i < readers.size(); ++i)
          (*readers[i])((static_cast<std::int64_t>(i) * tokens + begin) * (of_token / num_readers),
                        std::span(stored).subspan(i * of_reader, of_reader));
        for (std::int64_t t = 0; t < count; ++t)
          for (std::int64_t l = 0; l < layers; ++l)
            for (std::int64_t j = 0; j < k; ++j) {
              const std::int64_t from = by_layer ? (l * count + t) * k + j : (t * k + j) * layers + l;
              std::copy_n(stored.begin() + from * size, size,
                          usual.begin() + ((t * layers + l) * k + j) * size);
            }
        std::copy_n(usual.begin() + (first_byte - begin * of_token), std::ssize(out), out.begin());
      });
}

namespace {

// Above every known model. Larger arrays are read if options say so, but not suggested in errors.
constexpr std::int64_t most_layers_offered = 1024;
constexpr std::int64_t most_top_k_offered = 256;

// Facts about an array's numbers that decide what they may mean.
struct Facts {
  bool is_floating = false;
  bool are_probabilities = false;  // rows along the last axis sum to 1 and have fractions
  double least = 0;
  std::int64_t experts = 1;  // the largest number plus one, fillers not counted
  // For two dimensions: the distinct numbers in the first and second column.
  std::array<std::set<std::int64_t>, 2> columns = {};
};

Facts facts_of(const ArrayFile& file, const ArrayInfo& array) {
  const std::int64_t width = std::max<std::int64_t>(array.shape.back(), 1);
  const bool has_columns = array.shape.size() == 2 && width <= most_top_k_offered;
  Facts facts{.is_floating = is_floating(array.dtype)};
  bool any_fraction = false;
  bool sum_to_1 = width > 1 && array.num_elements > 0;
  double sum = 0;
  const auto reader = file.reader(array.name);
  std::vector<double> block(std::size_t{1} << 16);
  for (std::int64_t first = 0; first < array.num_elements; first += std::ssize(block)) {
    block.resize(static_cast<std::size_t>(std::min(std::ssize(block), array.num_elements - first)));
    reader->read(first, std::span(block));
    for (std::size_t i = 0; i < block.size(); ++i) {
      const double number = block[i];
      const auto column = static_cast<std::size_t>((first + static_cast<std::int64_t>(i)) % width);
      facts.least = std::min(facts.least, number);
      any_fraction = any_fraction || number != std::floor(number);
      sum = column == 0 ? number : sum + number;
      if (std::cmp_equal(column + 1, width)) sum_to_1 = sum_to_1 && std::abs(sum - 1) < 0.01;
      if (facts.is_floating) continue;
      const auto id = static_cast<std::int64_t>(std::min(number, 0x1p53));
      if (!is_filler(id)) facts.experts = std::max(facts.experts, id + (id < max_trace_experts));
      if (has_columns && column < 2 && facts.columns[column].size() <= max_trace_experts)
        facts.columns[column].insert(id);
    }
  }
  facts.are_probabilities = facts.is_floating && facts.least == 0 && sum_to_1 && any_fraction;
  return facts;
}

// What the numbers would mean in this order; empty if the order is impossible.
std::string meaning(const Order& order, const Lengths& shape, const Facts& facts) {
  const auto of = [&](std::string_view name) { return order.length(shape, name); };
  const bool by_rank = order.axes.starts_with("layers,ranks");
  const std::int64_t experts =
      order.is_of_tokens ? facts.experts : of("experts") * (by_rank ? of("ranks") : 1);
  const bool can_be = order.is_of_tokens ? !facts.is_floating && facts.least >= no_expert : facts.least >= 0;
  if (!can_be || order.num_axes() != std::ssize(shape) || std::ranges::find(shape, 0) != shape.end() ||
      of("layers") > most_layers_offered || of("k") > most_top_k_offered || experts > max_trace_experts)
    return "";
  return fmt::format(
      fmt::runtime(order.meaning), fmt::arg("experts", counted(experts, "expert")), fmt::arg("k", of("k")),
      fmt::arg("layers", counted(of("layers"), "layer")), fmt::arg("ranks", counted(of("ranks"), "rank")),
      fmt::arg("source_ranks", counted(of("ranks"), "source rank")),
      fmt::arg("steps", counted(of("steps"), "step")), fmt::arg("tokens", counted(of("tokens"), "token")));
}

// The possible readings as a table: each line has a layer, perhaps a token, and ids or counts.
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
  throw parse_error(
      file.name(), array.name,
      "has shape {}, and each row sums to 1: these look like router probabilities of tokens, not counts; "
      "record the ids that the router chose, or count them{}",
      to_text(array.shape),
      array.shape.size() == 2 ? "; if each row is a layer's shares of load, give axes layers,experts" : "");
}

std::string usual_order(const Lengths& shape, bool of_tokens) {
  if (shape.size() == 3) return of_tokens ? "tokens,layers,k" : "steps,layers,experts";
  return of_tokens ? "tokens,k" : "layers,experts";
}

// The only order in which the numbers have the model's sizes; empty if there is none or several.
std::string order_of_model(const ModelLayers& model, const Lengths& shape, const Facts& facts) {
  std::string found;
  for (const Order& order : orders) {
    if (order.is_of_one_step || meaning(order, shape, facts).empty()) continue;
    const auto of = [&](std::string_view name) { return order.length(shape, name); };
    const std::int64_t layers = of("layers");
    if (layers != std::ssize(model.moe_layers) && layers != model.num_hidden_layers &&
        layers != std::ssize(model.all_layers()))
      continue;
    if (order.is_of_tokens
            ? of("k") != model.top_k || (model.num_experts > 0 && facts.experts > model.num_experts)
            : of("ranks") * of("experts") != model.num_experts)
      continue;
    if (!found.empty()) return "";
    found = order.axes;
  }
  return found;
}

[[noreturn]] void ask(const ArrayFile& file, const ArrayInfo& array, bool one_step, const Facts& facts) {
  std::vector<std::string> readings;
  for (const Order& order : orders)
    if (const std::string text = meaning(order, array.shape, facts);
        !text.empty() && (one_step || !order.is_of_one_step))
      readings.push_back(fmt::format("{}: {}", order.axes, text));
  if (array.shape.size() == 2 && !facts.is_floating)
    if (const std::string columns = column_meanings(array.shape, facts); !columns.empty())
      readings.push_back("or columns " + columns);
  if (readings.empty())
    throw parse_error(file.name(), array.name,
                      "shape {} fits neither counts ([layers, experts] or [steps, layers, experts]) nor ids "
                      "([tokens, layers, k] or [tokens, k])",
                      to_text(array.shape));
  const std::string name =
      array.name.empty() ? "" : fmt::format("the name '{}' is unknown, and ", array.name);
  throw InvalidArgument(
      "axes",
      fmt::format("{}: {}no option says what the dimensions {} are", file.name(), name, to_text(array.shape)),
      fmt::format("{}; or an array named topk_ids, counts or physical_to_logical_map in the file",
                  fmt::join(readings, "; ")));
}

// The order from the options or the model; if neither gives it, throws an error that asks for it.
std::string order_said(const ArrayFile& file, const ArrayInfo& array, const ReadOptions& options,
                       const Facts& facts) {
  if (is_short_form(options.axes)) return usual_order(array.shape, options.axes == "trace");
  if (!options.axes.empty()) return options.axes;
  if (options.model)
    if (std::string axes = order_of_model(*options.model, array.shape, facts); !axes.empty()) return axes;
  if (facts.are_probabilities) refuse_probabilities(file, array);
  if (facts.is_floating && facts.least < 0)
    throw parse_error(
        file.name(), array.name,
        "has negative fractions, as logits do; record the ids that the router chose, or count them");
  ask(file, array, options.one_step, facts);
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
  if (order.is_of_tokens) {
    auto trace = open_trace_in(file, array, {.num_experts = options.num_experts, .axes = std::string(axes)});
    return {.kind = "trace", .format = {}, .content = FoundTrace{std::move(trace)}};
  }
  if (order.is_of_one_step) {
    IntArray loads = read_whole_numbers(file, array.name);
    require_loads(loads.values, file.name(), array.name);
    if (loads.values.empty()) throw ParseError(file.name(), array.name, "is empty");
    return {.kind = "loads", .format = {}, .content = FoundStep{std::move(loads)}};
  }
  return counts_in_order(file, array, axes, CountRows::unknown);
}

// Reads an array of two dimensions as the lines of a table.
FoundRouting read_columns(const ArrayFile& file, const ArrayInfo& array, const ReadOptions& options) {
  if (array.shape.size() != 2)
    throw InvalidArgument(
        "columns",
        fmt::format("{} has shape {}, but a table has two dimensions", file.name(), to_text(array.shape)),
        "to leave it out; axes gives the order of the dimensions");
  if (array.num_elements == 0) throw ParseError(file.name(), array.name, "is empty");
  const auto width = static_cast<std::size_t>(array.shape[1]);
  NamedTable table(columns_of_option(options.columns, width, file.name()), file.name());
  const auto add = [&](const auto& numbers) {
    std::vector<std::string> cells(width);
    for (std::int64_t line = 0; line < array.shape[0]; ++line) {
      for (std::size_t i = 0; i < width; ++i)
        cells[i] = fmt::format("{}", numbers.values[static_cast<std::size_t>(line) * width + i]);
      table.add({cells.begin(), cells.end()}, line + 1);
    }
  };
  is_floating(array.dtype) ? add(read_doubles(file, array.name)) : add(read_integers(file, array.name));
  FoundRouting found = table.found(options);
  found.set_axes(options.columns, "columns ");
  return found;
}

}  // namespace

FoundRouting nameless(const ArrayFile& file, const ArrayInfo& array, const ReadOptions& options) {
  if (array.shape.empty()) throw ParseError(file.name(), array.name, "is a single number, not routing");
  if (array.dtype == Dtype::b8) throw ParseError(file.name(), array.name, "is bool, not integers");
  if (!options.columns.empty()) return read_columns(file, array, options);
  const bool is_asked = options.axes.empty() || is_floating(array.dtype);
  const Facts facts = is_asked ? facts_of(file, array) : Facts{};
  const std::string axes = order_said(file, array, options, facts);
  if (facts.are_probabilities && axes != "layers,experts") refuse_probabilities(file, array);
  FoundRouting found = read_as(axes, file, array, options);
  found.set_axes(axes);
  if (facts.are_probabilities)
    found.notes.push_back(
        "every layer's numbers sum to 1: read as its experts' shares of the load, not as probabilities of a "
        "token");
  return found;
}

FoundRouting named_counts(const ArrayFile& file, const ArrayInfo& array, CountRows rows,
                          const ReadOptions& options) {
  const Order* order = find_order(options.axes);
  if (order == nullptr || order->is_of_tokens || order->is_of_one_step)
    return counts_in_order(file, array, "", rows);
  checked_order(options.axes, array.shape, false, file.name());
  FoundRouting found = counts_in_order(file, array, options.axes, rows);
  found.set_axes(options.axes);
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
