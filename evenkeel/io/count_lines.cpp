#include "evenkeel/io/count_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/count_table_builder.h"
#include "evenkeel/io/internal/fractional_loads.h"
#include "evenkeel/io/internal/json_lines.h"
#include "evenkeel/io/internal/moe_layers.h"
#include "evenkeel/io/internal/number_lists.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel {

namespace {

using internal::Json;

constexpr std::string_view list_keys[] = {"counts", "count",         "logical_count", "loads",
                                          "load",   "expert_counts", "expert_load",   "tokens_per_expert",
                                          "weight"};

// The one key of lists of counts that a record has; none if it has no lists at all.
std::optional<std::string> list_key(const Json& record, const std::string& where) {
  std::string lists;
  std::optional<std::string> known;
  for (const auto& [key, value] : record.items()) {
    if (!value.is_array()) continue;
    if (std::find(std::begin(list_keys), std::end(list_keys), key) != std::end(list_keys)) {
      if (known)
        throw ParseError(where, "",
                         fmt::format("has counts under '{}' and '{}'; leave one of them", *known, key));
      known = key;
    }
    lists += fmt::format("{}'{}'", lists.empty() ? "" : ", ", key);
  }
  if (!known && !lists.empty())
    throw ParseError(where, "",
                     fmt::format("has the lists {}, and none is called 'counts' or 'logical_count'", lists));
  return known;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Records whose keys are all single values, or that are one list of counts beside single values: lines of a
// table, with a column for each.
class RecordTable {
 public:
  RecordTable(std::string file, std::optional<std::string> list)
      : file_(std::move(file)), list_(std::move(list)) {}

  void add(const Json& record, std::int64_t line, const std::string& where) {
    texts_.clear();
    std::vector<std::string> names;
    for (const auto& [key, value] : record.items()) {
      // Beside a list, only the layer and the step mean anything.
      if (value.is_structured() || (list_ && !internal::names_a_layer_or_step(key))) continue;
      names.push_back(key);
      texts_.push_back(text_of(value));
    }
    if (list_) append_list(record[*list_], where, names);
    if (!builder_) begin(names, where);
    if (names != names_)
      throw ParseError(where, "", "has other keys, or another number of experts, than the first");
    builder_->add({texts_.begin(), texts_.end()}, line);
  }

  internal::CountTable table(std::optional<int> num_experts) { return builder_->table(num_experts); }

 private:
  void append_list(const Json& list, const std::string& where, std::vector<std::string>& names) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list[i].is_number())
        throw ParseError(where, fmt::format("{}[{}]", *list_, i),
                         fmt::format("is a JSON {}, not a number", list[i].type_name()));
      names.push_back(fmt::format("expert_{}", i));
      texts_.push_back(list[i].dump());
    }
  }

  void begin(const std::vector<std::string>& names, const std::string& where) {
    names_ = names;
    std::vector<std::string_view> views;
    for (const std::string& name : names_) views.push_back(name);
    internal::TableColumns columns = internal::columns_of_names(views, file_, where);
    if (list_ && !columns.layer)
      throw ParseError(where, *list_,
                       fmt::format("is a list of experts, and nobody says of which layer; give every line a "
                                   "'layer', or write a list of lists by layer"));
    builder_.emplace(std::move(columns), file_);
  }

  std::string file_;
  std::optional<std::string> list_;
  std::vector<std::string> names_;
  std::vector<std::string> texts_;
  std::optional<internal::CountTableBuilder> builder_;
};

// Records with all layers each, [layers, E] or [steps, layers, E], added up.
class LayerLists {
 public:
  LayerLists(std::string file, std::string key) : file_(std::move(file)), key_(std::move(key)) {}

  void add(const Json& record, const std::string& where) {
    const Json& list = internal::member(record, key_.c_str(), where);
    std::vector<double> values;
    const std::vector<std::int64_t> shape = internal::nested_reals(
        list, std::clamp<std::size_t>(internal::list_depth(list), 2, 3), where, key_, values);
    const std::vector<std::int64_t> of_step(shape.end() - 2, shape.end());
    if (shape_.empty()) {
      shape_ = of_step;
      sums_.assign(static_cast<std::size_t>(shape_[0] * shape_[1]), 0.0);
    }
    if (of_step != shape_)
      throw ParseError(where, key_,
                       fmt::format("is of shape {} where the first is of {}", internal::to_text(of_step),
                                   internal::to_text(shape_)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0)
        throw ParseError(where, key_, fmt::format("has {}; a count is 0 or more", values[i]));
      sums_[i % sums_.size()] += values[i];
    }
  }

  RoutingFile routing() {
    internal::ScaledLoads scaled = internal::scaled_loads(sums_, file_, key_);
    // SGLang's have a row for every hidden layer.
    RoutingFile made = internal::routing_of_counts(
        {.shape = shape_, .values = std::move(scaled.loads)}, file_, key_,
        key_ == "logical_count" ? internal::CountRows::hidden_if_dense : internal::CountRows::unsaid);
    scaled.note_in(made.notes);
    return made;
  }

 private:
  std::string file_;
  std::string key_;
  std::vector<std::int64_t> shape_;
  std::vector<double> sums_;
};

// Lists by layer of lists by expert. Ours under "counts" are by source rank.
bool has_all_layers(const Json& record, const std::string& key, const std::string& where) {
  if (internal::list_depth(record[key]) < 2) return false;
  if (key == "counts")
    throw ParseError(
        where, key,
        "may be a list by layer or by source rank; call lists by layer 'logical_count', and give lists "
        "of one layer a 'layer' and a line for each rank");
  for (const auto& [name, value] : record.items())
    if (!value.is_structured() && name.starts_with("layer"))
      throw ParseError(where, key, fmt::format("is a list of lists, which have layers, beside '{}'", name));
  return true;
}

}  // namespace

bool is_json_lines(std::string_view beginning) {
  char last = 0;  // of the first line, blanks left out
  bool first_line_ended = false;
  for (char c : beginning) {
    if (c == '\n') first_line_ended = first_line_ended || last != 0;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') continue;
    if (first_line_ended) return last == '}' && c == '{';
    last = c;
  }
  return false;
}

RoutingFile open_count_lines(const ByteSource& source, const RoutingOptions& options) {
  const std::string& file = source.name();
  std::optional<std::string> key;
  std::optional<LayerLists> layers;
  std::optional<RecordTable> table;
  internal::for_each_json_line(source, [&](internal::JsonDocument&& record, std::int64_t line) {
    const std::string where = fmt::format("{}: line {}", file, line);
    if (!record.is_object()) throw ParseError(where, "", "is no JSON object");
    const std::optional<std::string> found = list_key(record, where);
    const bool all_layers = found && has_all_layers(record, *found, where);
    if (!layers && !table) {
      key = found;
      if (all_layers)
        layers.emplace(file, *key);
      else
        table.emplace(file, key);
    }
    if (found != key || all_layers != layers.has_value())
      throw ParseError(where, "", "is a record of another kind than the first");
    if (layers)
      layers->add(record, where);
    else
      table->add(record, line, where);
  });
  if (!layers && !table) throw ParseError(file, "", "has no record");
  RoutingFile made =
      layers ? layers->routing() : internal::routing_of_table(table->table(options.num_experts), file);
  made.format = "json";
  return made;
}

}  // namespace evenkeel
