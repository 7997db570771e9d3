#include "evenkeel/io/internal/trtllm_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/io/internal/yaml.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

constexpr std::string_view assignments_key = "initial_global_assignments";
constexpr std::array<std::string_view, 3> number_keys = {"num_slots", "layer_updates_per_iter", "ep_size"};

bool is_number_key(std::string_view key) {
  return std::find(number_keys.begin(), number_keys.end(), key) != number_keys.end();
}

// In the one notation that every version of YAML takes for the same number: 010 is 8 in YAML 1.1.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  return digits.size() > 1 && digits.front() == '0' ? std::nullopt : std::optional(value);
}

class TrtllmParser {
 public:
  TrtllmParser(const Yaml& yaml, std::string file, std::size_t text_bytes)
      : yaml_(yaml),
        file_(std::move(file)),
        budget_((std::int64_t{1} << 20) + 4 * static_cast<std::int64_t>(text_bytes)) {}

  TrtllmYaml parse() {
    TrtllmYaml read;
    const Id map = balancer();
    bool has_assignments = false;
    for (Id key = yaml_.first(map); key != yaml_.end(map); key = yaml_.next(yaml_.next(key))) {
      const Id value = yaml_.next(key);
      if (is_key(key, assignments_key)) {
        if (std::exchange(has_assignments, true)) refuse(key, "{} is given twice", assignments_key);
        take_assignments(value, read);
      } else {
        take_number(key, value, read);
      }
    }
    return read;
  }

 private:
  using Id = Yaml::Id;
  using Kind = Yaml::Kind;

  template <class... Args>
  [[noreturn]] void refuse(Id id, fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, fmt::format("line {}", yaml_.line(id)), why, std::forward<Args>(args)...);
  }

  bool is_key(Id id, std::string_view key) const {
    return yaml_.kind(id) == Kind::scalar && yaml_.text(id) == key;
  }

  // A scalar's text, or what else there is.
  std::string shown(Id id) const {
    constexpr std::size_t most = 60;
    if (yaml_.kind(id) != Kind::scalar) return yaml_.kind_name(id);
    const std::string_view text = yaml_.text(id);
    return text.size() <= most ? fmt::format("'{}'", text) : fmt::format("'{}...'", text.substr(0, most));
  }

  // The map that has the assignments, wherever it stands; of a file without assignments its outermost.
  Id balancer() const {
    std::optional<Id> found;
    for (Id map = 0; map < yaml_.size(); ++map) {
      if (yaml_.is_alias(map) || yaml_.kind(map) != Kind::map || !has_assignments(map)) continue;
      if (found)
        refuse(map, "is a second map with {}; the first is in line {}", assignments_key, yaml_.line(*found));
      found = map;
    }
    if (found) return *found;
    if (yaml_.empty() || yaml_.kind(yaml_.root()) != Kind::map)
      throw parse_error(file_, "", "is YAML without a map that has {}", assignments_key);
    return yaml_.root();
  }

  bool has_assignments(Id map) const {
    for (Id key = yaml_.first(map); key != yaml_.end(map); key = yaml_.next(yaml_.next(key)))
      if (is_key(key, assignments_key)) return true;
    return false;
  }

  void take_number(Id key, Id value, TrtllmYaml& read) const {
    if (yaml_.kind(key) != Kind::scalar || !is_number_key(yaml_.text(key)))
      refuse(key, "{} is no key of a TensorRT-LLM load balancer", shown(key));
    const std::string name(yaml_.text(key));
    const auto number = plain_number(value);
    if (!number) refuse(value, "{}: {} is not a whole number", name, shown(value));
    if (!read.numbers.emplace(name, *number).second) refuse(key, "{} is given twice", name);
  }

  void take_assignments(Id layers, TrtllmYaml& read) {
    if (yaml_.kind(layers) != Kind::map)
      refuse(layers, "{} is {}, not a map of layers", assignments_key, shown(layers));
    for (Id key = yaml_.first(layers); key != yaml_.end(layers); key = yaml_.next(yaml_.next(key))) {
      const auto layer = yaml_.kind(key) == Kind::scalar ? whole_number(yaml_.text(key)) : std::nullopt;
      if (!layer || *layer < 0 || *layer >= max_layers)
        refuse(key, "{} is not the number of a layer", shown(key));
      const auto [row, fresh] = read.assignments.try_emplace(*layer);
      if (!fresh) refuse(key, "layer {} is given twice", *layer);
      take_row(yaml_.next(key), row->second);
    }
  }

  void take_row(Id list, PhysicalRow& row) {
    if (yaml_.kind(list) != Kind::list) refuse(list, "{} is not a list of experts", shown(list));
    for (Id slot = yaml_.first(list); slot != yaml_.end(list); slot = yaml_.next(slot)) {
      const auto expert = plain_number(slot);
      if (!expert) refuse(slot, "{} is not an expert", shown(slot));
      // A list may stand for many by its aliases.
      if (--budget_ < 0) refuse(list, "takes more memory than a file of this size may ask for");
      row.push_back(*expert);
    }
  }

  std::optional<std::int64_t> plain_number(Id id) const {
    if (yaml_.kind(id) != Kind::scalar || !yaml_.is_plain(id)) return std::nullopt;
    return whole_number(yaml_.text(id));
  }

  const Yaml& yaml_;
  std::string file_;
  std::int64_t budget_;  // experts that may still be read
};

}  // namespace

bool begins_like_trtllm_yaml(std::string_view head) {
  while (!head.empty()) {
    const std::size_t end = head.find('\n');
    std::string_view line = head.substr(0, end);
    head.remove_prefix(end == std::string_view::npos ? head.size() : end + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r{"), line.size()));
    if (line.empty() || line.starts_with('#') || line.starts_with("---") || line.starts_with('%')) continue;
    std::string_view key = line.substr(0, line.find(':'));
    if (key.size() == line.size()) return false;
    if (key.size() > 2 && (key.front() == '"' || key.front() == '\'') && key.back() == key.front())
      key = key.substr(1, key.size() - 2);
    return key == assignments_key || is_number_key(key);
  }
  return false;
}

bool mentions_trtllm_map(const ByteSource& source) {
  if (source.size() > max_text_bytes) return false;
  bool found = false;
  for_each_piece(source, assignments_key.size() - 1, [&](std::string_view text) {
    found = text.find(assignments_key) != std::string_view::npos;
    return !found;
  });
  return found;
}

TrtllmYaml parse_trtllm_yaml(const ByteSource& source) {
  const std::string text = read_text(source, "YAML");
  const Yaml yaml(without_mark(text), source.name());
  return TrtllmParser(yaml, source.name(), text.size()).parse();
}

}  // namespace evenkeel::internal
