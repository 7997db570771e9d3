// Counts in JSON lines.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/table.h"
#include "evenkeel/io/internal/text_table.h"

namespace evenkeel::internal {

namespace {

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
        throw parse_error(where, "", "has counts under '{}' and '{}'; leave one of them", *known, key);
      known = key;
    }
    lists += fmt::format("{}'{}'", lists.empty() ? "" : ", ", key);
  }
  if (!known && !lists.empty())
    throw parse_error(where, "", "has the lists {}, and none is called 'counts' or 'logical_count'", lists);
  return known;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Counts alone are added up, so the rest of a profile would be lost.
void require_no_profile(const Json& record, const std::string& where) {
  const auto format = record.find("format");
  const bool is_ours =
      format != record.end() && format->is_string() && format->get<std::string>().starts_with("evenkeel.");
  for (const char* key : {"format", "transitions", "layers"})
    if (record.contains(key) && (is_ours || !record[key].is_primitive()))
      throw ParseError(where, key,
                       "is a profile's, and lines are counts alone; write each profile to a file of its own, "
                       "and give evenkeel profile all files, which it adds up");
}

// The name of a step or a rank may be any text.
void require_no_quotes(const std::string& key, const Json& value, const std::string& where) {
  if (value.is_string() && !names_a_step(key) && !names_a_part(key) &&
      number_of_text(value.get<std::string>()))
    throw parse_error(where, key, "is the text {}; right would be the number, without quotes", value.dump());
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
      if (value.is_structured() || (list_ && !names_a_layer_or_step(key))) continue;
      require_no_quotes(key, value, where);
      names.push_back(key);
      texts_.push_back(text_of(value));
    }
    if (list_) append_list(record[*list_], where, names);
    if (!table_) begin(names, line, where);
    if (names != names_)
      throw ParseError(where, "", "has other keys, or another number of experts, than the first");
    table_->add({texts_.begin(), texts_.end()}, line);
  }

  FoundRouting found(const ReadOptions& options) { return table_->found(options); }

 private:
  void append_list(const Json& list, const std::string& where, std::vector<std::string>& names) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list[i].is_number())
        throw parse_error(where, fmt::format("{}[{}]", *list_, i), "is a JSON {}, not a number",
                          list[i].type_name());
      names.push_back(fmt::format("expert_{}", i));
      texts_.push_back(list[i].dump());
    }
  }

  void begin(const std::vector<std::string>& names, std::int64_t line, const std::string& where) {
    names_ = names;
    std::vector<std::string_view> views;
    for (const std::string& name : names_) views.push_back(name);
    TableColumns columns = columns_of_names(views, file_, fmt::format("line {}", line));
    if (list_ && !columns.layer)
      throw parse_error(where, *list_,
                        "is a list of experts, and nobody says of which layer; give every line a "
                        "'layer', or write a list of lists by layer");
    table_.emplace(std::move(columns), file_);
  }

  std::string file_;
  std::optional<std::string> list_;
  std::vector<std::string> names_;
  std::vector<std::string> texts_;
  std::optional<NamedTable> table_;
};

// A record's keys of one kind: their names, and the values that it has there.
struct Said {
  std::string names;
  std::string texts;
};

Said said_under(const Json& record, bool (*is_meant)(std::string_view)) {
  Said said;
  for (const auto& [key, value] : record.items()) {
    if (value.is_structured() || !is_meant(key)) continue;
    said.names += fmt::format("{}'{}'", said.names.empty() ? "" : ", ", key);
    said.texts.append(text_of(value)).push_back('\0');
  }
  return said;
}

// Records with all layers each, [layers, E] or [steps, layers, E], added up; or by step, where steps are to
// be kept and the records tell them apart.
class LayerLists {
 public:
  LayerLists(std::string file, std::string key, bool keep_steps)
      : file_(std::move(file)), key_(std::move(key)), keep_steps_(keep_steps) {}

  void add(const Json& record, const std::string& where) {
    const Json& list = record[key_];
    const auto [shape, values] =
        nested_reals(list, std::clamp<std::size_t>(list_depth(list), 2, 3), where, key_);
    const std::vector<std::int64_t> of_step(shape.end() - 2, shape.end());
    if (shape_.empty()) shape_ = of_step;
    if (of_step != shape_)
      throw parse_error(where, key_, "is of shape {} where the first is of {}", to_text(of_step),
                        to_text(shape_));
    for (const double value : values)
      if (value < 0) throw parse_error(where, key_, "has {}; a count is 0 or more", value);
    const auto size = static_cast<std::size_t>(shape_[0] * shape_[1]);
    const bool has_steps = shape.size() == 3;
    for (std::size_t step = 0; step * size < values.size(); ++step) {
      const auto sum = sum_of(keep_steps_ ? place_of(record, step, has_steps, where) : 0, size);
      for (std::size_t i = 0; i < size; ++i) sum[i] += values[step * size + i];
    }
  }

  FoundRouting found() {
    DoubleArray loads{shape_, std::move(sums_)};
    if (by_step_.value_or(false)) loads.shape.insert(loads.shape.begin(), std::ssize(places_));
    // SGLang's have a row for every hidden layer.
    return found_counts(loads, file_, key_, rows_of(key_));
  }

 private:
  std::span<double> sum_of(std::size_t place, std::size_t size) {
    if (sums_.size() < (place + 1) * size) sums_.resize((place + 1) * size, 0.0);
    return std::span(sums_).subspan(place * size, size);
  }

  // Which step of the file a step of a record is; the first where none has any.
  std::size_t place_of(const Json& record, std::size_t step, bool has_steps, const std::string& where) {
    const Said steps = said_under(record, names_a_step);
    const Said parts = said_under(record, names_a_part);
    const bool by_step = has_steps || !steps.names.empty();
    if (!by_step_) step_names_ = steps.names;
    if (by_step_.value_or(by_step) != by_step || steps.names != step_names_)
      throw parse_error(where, "",
                        "says its step {}, where the first says it {}; nobody knows which steps "
                        "these are",
                        under(steps.names, has_steps), under(step_names_, first_has_steps_));
    if (!by_step_) first_has_steps_ = has_steps;
    by_step_ = by_step;
    if (!by_step) return 0;
    const std::string id = fmt::format("{}{}", steps.texts, has_steps ? fmt::to_string(step) : "");
    if (!seen_.insert(id + '\0' + '\0' + parts.texts).second)
      throw ParseError(
          where, "",
          "has a step that a line before has too, and no key such as 'rank' tells them apart: give "
          "every line its 'rank' if ranks wrote them, or each step its own 'step'");
    return places_.try_emplace(id, places_.size()).first->second;
  }

  static std::string under(const std::string& names, bool has_steps) {
    if (!names.empty()) return "under " + names;
    return has_steps ? "by its place in the list" : "nowhere";
  }

  std::string file_;
  std::string key_;
  bool keep_steps_;
  std::vector<std::int64_t> shape_;
  std::vector<double> sums_;  // [layers, E], or of each step
  std::optional<bool> by_step_ = {};
  bool first_has_steps_ = false;
  std::string step_names_;
  std::unordered_map<std::string, std::size_t> places_;
  std::unordered_set<std::string> seen_;
};

// Lists by layer of lists by expert. Ours under "counts" are by source rank.
bool has_all_layers(const Json& record, const std::string& key, const std::string& where) {
  if (list_depth(record[key]) < 2) return false;
  if (key == "counts")
    throw ParseError(
        where, key,
        "may be a list by layer or by source rank; call lists by layer 'logical_count', and give lists "
        "of one layer a 'layer' and a line for each rank");
  for (const auto& [name, value] : record.items())
    if (!value.is_structured() && name.starts_with("layer"))
      throw parse_error(where, key, "is a list of lists, which have layers, beside '{}'", name);
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

FoundRouting find_count_lines(const ByteSource& source, const ReadOptions& options) {
  const std::string& file = source.name();
  std::optional<std::string> key;
  std::optional<LayerLists> layers;
  std::optional<RecordTable> table;
  for_each_json_line(source, [&](JsonDocument&& record, std::int64_t line) {
    const std::string where = fmt::format("{}: line {}", file, line);
    if (!record.is_object()) throw ParseError(where, "", "is no JSON object");
    require_no_profile(record, where);
    const std::optional<std::string> found = list_key(record, where);
    if (found) require_no_map(record, *found, where);
    const bool all_layers = found && has_all_layers(record, *found, where);
    if (!layers && !table) {
      key = found;
      if (all_layers)
        layers.emplace(file, *key, options.keeps_steps());
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
  FoundRouting found = layers ? layers->found() : table->found(options);
  found.format = "json";
  return found;
}

}  // namespace evenkeel::internal
