// Reads counts in JSON Lines.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
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

namespace evenkeel::internal {

namespace {

constexpr std::string_view list_keys[] = {"counts", "count",         "logical_count", "loads",
                                          "load",   "expert_counts", "expert_load",   "tokens_per_expert",
                                          "weight"};

// The key of the record's list of counts; empty if the record has no list.
std::string list_key(const Json& record, const std::string& where) {
  const auto is_list = [&](std::string_view key) { return record.contains(key) && record[key].is_array(); };
  std::string known = only_of(list_keys, is_list, where);
  for (const auto& [key, value] : record.items())
    if (known.empty() && value.is_array())
      throw ParseError(where, key,
                       "is a list with an unknown name; call the list of counts 'counts' or 'logical_count'");
  return known;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Whether a key distinguishes lines, as a step or a part; its value may be any text.
bool tells_lines_apart(std::string_view key) {
  return column_meaning(key) == Meaning::step || column_meaning(key) == Meaning::part;
}

// Throws for a profile: only counts are added up, so the rest of the profile would be lost.
void require_no_profile(const Json& record, const std::string& where) {
  for (const std::string key : {"format", "transitions", "layers"})
    if (record.contains(key) &&
        (record[key].is_structured() || text_of(record[key]).starts_with("evenkeel.")))
      throw ParseError(where, key,
                       "belongs to a profile, but lines can only have counts; write each profile to its own "
                       "file; 'evenkeel profile' with all files adds them up");
}

// Records of single values, with or without one list of counts. Each is read as a line of a table.
class RecordTable {
 public:
  RecordTable(std::string file, std::string list) : file_(std::move(file)), list_(std::move(list)) {}

  void add(const Json& record, std::int64_t line, const std::string& where) {
    std::vector<std::string> names;
    std::vector<std::string> texts;
    for (const auto& [key, value] : record.items()) {
      // With a list of counts, only keys for layer, step or part have a meaning.
      if (value.is_structured() ||
          (!list_.empty() && !tells_lines_apart(key) && column_meaning(key) != Meaning::layer))
        continue;
      if (value.is_string() && number_of_text(value.get<std::string>()) && !tells_lines_apart(key))
        throw parse_error(where, key, "is the text {}; write the number without quotes", value.dump());
      names.push_back(key);
      texts.push_back(text_of(value));
    }
    for (std::size_t i = 0; !list_.empty() && i < record[list_].size(); ++i) {
      const Json& number = record[list_][i];
      if (!number.is_number())
        throw parse_error(where, fmt::format("{}[{}]", list_, i), "is a JSON {}, not a number",
                          number.type_name());
      names.push_back(fmt::format("expert_{}", i));
      texts.push_back(number.dump());
    }
    if (!table_) {
      TableColumns columns =
          columns_of_names({names.begin(), names.end()}, file_, fmt::format("line {}", line));
      if (!list_.empty() && !columns.layer)
        throw parse_error(where, list_,
                          "is a list by expert, but the line does not say its layer; add a 'layer' to every "
                          "line, or write a list of lists by layer");
      table_.emplace(std::move(columns), file_);
      names_ = names;
    }
    if (names != names_)
      throw ParseError(where, "", "has other keys, or another number of experts, than the first line");
    table_->add({texts.begin(), texts.end()}, line);
  }

  FoundRouting found(const ReadOptions& options) { return table_->found(options); }

 private:
  std::string file_;
  std::string list_;
  std::vector<std::string> names_;
  std::optional<NamedTable> table_;
};

// Records that each have all layers, [layers, E] or [steps, layers, E]. They are added up, or kept by step if
// steps are wanted and the records name them.
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
      throw parse_error(where, key_, "has shape {}, but in the first record it has shape {}",
                        to_text(of_step), to_text(shape_));
    for (const double value : values)
      if (value < 0) throw parse_error(where, key_, "has {}; a count is 0 or more", value);
    const Said said = said_of(record, shape.size() == 3);
    if (said_by_.empty()) said_by_ = said.by;
    if (keep_steps_ && said.by != said_by_)
      throw parse_error(
          where, "", "gives its step {}, but the first record gives its step {}; the steps cannot be matched",
          said.by, said_by_);
    const auto size = static_cast<std::size_t>(shape_[0] * shape_[1]);
    for (std::size_t begin = 0; begin < values.size(); begin += size) {
      const bool by_step = keep_steps_ && said.by != nowhere;
      const std::size_t place =
          by_step ? place_of(said.step + fmt::to_string(begin / size), said.part, where) : 0;
      if (sums_.size() < (place + 1) * size) sums_.resize((place + 1) * size, 0.0);
      for (std::size_t i = 0; i < size; ++i) sums_[place * size + i] += values[begin + i];
    }
  }

  FoundRouting found() {
    DoubleArray loads{shape_, std::move(sums_)};
    if (!places_.empty()) loads.shape.insert(loads.shape.begin(), std::ssize(places_));
    // SGLang's counts have a row for every hidden layer.
    return found_counts(loads, file_, key_, rows_of(key_));
  }

 private:
  static constexpr std::string_view nowhere = "nowhere";

  // `by`: how a record names its step, for messages. `step` and `part`: the values of its step and part keys.
  struct Said {
    std::string by;
    std::string step;
    std::string part;
  };

  static Said said_of(const Json& record, bool has_steps) {
    Said said;
    std::vector<std::string> ways;
    for (const auto& [key, value] : record.items()) {
      if (value.is_structured()) continue;
      const Meaning meaning = column_meaning(key);
      if (meaning == Meaning::step) ways.push_back(fmt::format("under '{}'", key));
      if (meaning == Meaning::step) said.step.append(text_of(value)).push_back('\0');
      if (meaning == Meaning::part) said.part.append(text_of(value)).push_back('\0');
    }
    if (has_steps) ways.push_back("by its place in the list");
    said.by = ways.empty() ? std::string(nowhere) : fmt::format("{}", fmt::join(ways, " and "));
    return said;
  }

  // The index of a step, in the order in which steps first appear in the file.
  std::size_t place_of(const std::string& step, const std::string& part, const std::string& where) {
    if (!seen_.insert(step + '\0' + '\0' + part).second)
      throw ParseError(
          where, "",
          "repeats the step of an earlier line, and no key such as 'rank' tells the two apart: add a 'rank' "
          "to every line if several ranks wrote them, or give each step its own 'step'");
    return places_.try_emplace(step, places_.size()).first->second;
  }

  std::string file_;
  std::string key_;
  bool keep_steps_;
  std::vector<std::int64_t> shape_;
  std::vector<double> sums_;  // [layers, E], or [steps, layers, E]
  std::string said_by_;
  std::unordered_map<std::string, std::size_t> places_;
  std::unordered_set<std::string> seen_;
};

// Whether the record's list is by layer and expert. It must not be named "counts", which we use for counts by
// source rank.
bool has_all_layers(const Json& record, const std::string& key, const std::string& where) {
  if (list_depth(record[key]) < 2) return false;
  if (key == "counts")
    throw ParseError(where, key,
                     "may be a list by layer or by source rank; if by layer, call the list 'logical_count'; "
                     "if by rank, write one line for each rank, with its 'layer'");
  for (const auto& [name, value] : record.items())
    if (!value.is_structured() && name.starts_with("layer"))
      throw parse_error(where, key,
                        "is a list of lists by layer, but the record also has '{}'; remove one of the two",
                        name);
  return true;
}

}  // namespace

bool is_json_lines(std::string_view beginning) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t end = beginning.find('\n', std::min(beginning.find('{'), beginning.size()));
  const std::size_t next = beginning.find_first_not_of(blanks, end);
  if (next == std::string_view::npos) return false;
  return beginning[beginning.find_last_not_of(blanks, end)] == '}' && beginning[next] == '{';
}

FoundRouting find_count_lines(const ByteSource& source, const ReadOptions& options) {
  const std::string& file = source.name();
  std::string key;
  std::optional<LayerLists> layers;
  std::optional<RecordTable> table;
  for_each_json_line(source, [&](JsonDocument&& record, std::int64_t line) {
    const std::string where = fmt::format("{}: line {}", file, line);
    if (!record.is_object()) throw ParseError(where, "", "is not a JSON object");
    require_no_profile(record, where);
    const std::string found = list_key(record, where);
    if (!found.empty()) require_no_map(record, found, where);
    const bool all_layers = !found.empty() && has_all_layers(record, found, where);
    if (!layers && !table) {
      key = found;
      if (all_layers)
        layers.emplace(file, key, options.keeps_steps());
      else
        table.emplace(file, key);
    }
    if (found != key || all_layers != layers.has_value())
      throw ParseError(where, "",
                       "has its counts under another name, or in another form, than the first record");
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
