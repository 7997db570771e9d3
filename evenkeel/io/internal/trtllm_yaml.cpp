#include "evenkeel/io/internal/trtllm_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

constexpr std::string_view assignments_key = "initial_global_assignments";
constexpr std::array<std::string_view, 3> number_keys = {"num_slots", "layer_updates_per_iter", "ep_size"};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

struct Line {
  std::size_t number = 0;
  bool indented = false;
  std::string_view text;  // without indentation and comment
};

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1);
    std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    ++number;
    if (line.ends_with('\n')) line.remove_suffix(1);
    line = line.substr(0, line.find('#'));
    const std::string_view content = trimmed(line);
    if (content.empty() || content == "---") continue;
    lines.push_back({number, line.front() == ' ' || line.front() == '\t' || line.front() == '-', content});
  }
  return lines;
}

class Parser {
 public:
  Parser(std::string file, std::string_view text) : file_(std::move(file)), lines_(lines_of(text)) {}

  TrtllmYaml parse() {
    TrtllmYaml yaml;
    while (at_ < lines_.size()) {
      const auto [key, value] = key_and_value(lines_[at_]);
      if (lines_[at_].indented) refuse("is indented where a key is expected");
      if (key == assignments_key)
        take_assignments(value, yaml);
      else
        take_number(key, value, yaml);
    }
    return yaml;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw ParseError(file_, fmt::format("line {}", lines_[std::min(at_, lines_.size() - 1)].number), why);
  }

  std::pair<std::string_view, std::string_view> key_and_value(const Line& line) const {
    const std::size_t colon = line.text.find(':');
    if (colon == std::string_view::npos) refuse("is not 'key: value'");
    return {trimmed(line.text.substr(0, colon)), trimmed(line.text.substr(colon + 1))};
  }

  void take_number(std::string_view key, std::string_view value, TrtllmYaml& yaml) {
    if (std::find(number_keys.begin(), number_keys.end(), key) == number_keys.end())
      refuse(fmt::format("'{}' is no key of a TensorRT-LLM load balancer", key));
    const auto number = whole_number(value);
    if (!number) refuse(fmt::format("{}: '{}' is not a whole number", key, value));
    if (!yaml.numbers.emplace(key, *number).second) refuse(fmt::format("{} is given twice", key));
    ++at_;
  }

  void take_assignments(std::string_view value, TrtllmYaml& yaml) {
    if (!value.empty()) refuse(fmt::format("{} is not a mapping of layers, one a line", assignments_key));
    if (!yaml.assignments.empty()) refuse(fmt::format("{} is given twice", assignments_key));
    ++at_;
    while (at_ < lines_.size() && lines_[at_].indented) take_layer(yaml);
  }

  void take_layer(TrtllmYaml& yaml) {
    const auto [key, value] = key_and_value(lines_[at_]);
    const auto layer = whole_number(key);
    if (!layer || *layer < 0 || *layer >= max_layers)
      refuse(fmt::format("'{}' is not the number of a layer", key));
    const auto [row, fresh] = yaml.assignments.try_emplace(*layer);
    if (!fresh) refuse(fmt::format("layer {} is given twice", *layer));
    if (value.empty())
      take_dashes(row->second);
    else
      take_brackets(value, row->second);
  }

  // - 3
  // - 1
  void take_dashes(PhysicalRow& row) {
    for (++at_; at_ < lines_.size() && lines_[at_].text.starts_with('-'); ++at_)
      row.push_back(slot(trimmed(lines_[at_].text.substr(1))));
  }

  // [3, 1,
  //  2]
  void take_brackets(std::string_view value, PhysicalRow& row) {
    if (!value.starts_with('[')) refuse("is not a list of experts");
    value.remove_prefix(1);
    while (true) {
      const std::size_t end = value.find(']');
      take_list(value.substr(0, end), row);
      if (end != std::string_view::npos) {
        if (!trimmed(value.substr(end + 1)).empty()) refuse("has more after the list");
        ++at_;
        return;
      }
      if (++at_ == lines_.size()) refuse("the list does not end");
      value = lines_[at_].text;
    }
  }

  void take_list(std::string_view list, PhysicalRow& row) {
    while (!trimmed(list).empty()) {
      const std::size_t comma = list.find(',');
      row.push_back(slot(trimmed(list.substr(0, comma))));
      if (comma == std::string_view::npos) return;
      list.remove_prefix(comma + 1);
    }
  }

  std::int64_t slot(std::string_view text) const {
    const auto number = whole_number(text);
    if (!number) refuse(fmt::format("'{}' is not an expert", text));
    return *number;
  }

  std::string file_;
  std::vector<Line> lines_;
  std::size_t at_ = 0;
};

}  // namespace

bool begins_like_trtllm_yaml(std::string_view head) {
  const auto lines = lines_of(head);
  if (lines.empty()) return false;
  const auto begins_with = [&](std::string_view key) {
    return lines.front().text.starts_with(key) && lines.front().text.substr(key.size()).starts_with(':');
  };
  return begins_with(assignments_key) || std::any_of(number_keys.begin(), number_keys.end(), begins_with);
}

TrtllmYaml parse_trtllm_yaml(const ByteSource& source) {
  const std::string text = read_text(source, "YAML");
  return Parser(source.name(), without_mark(text)).parse();
}

}  // namespace evenkeel::internal
