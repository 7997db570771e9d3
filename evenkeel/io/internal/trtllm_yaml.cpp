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
  TrtllmParser(const std::deque<YamlNode>& nodes, const std::string& file, std::size_t text_bytes)
      : nodes_(nodes),
        file_(file),
        budget_((std::int64_t{1} << 20) + 4 * static_cast<std::int64_t>(text_bytes)) {}

  TrtllmYaml parse() {
    TrtllmYaml read;
    const auto& places = balancer().places;
    bool has_assignments = false;
    for (std::size_t i = 0; i < places.size(); i += 2) {
      if (is_key(places[i], assignments_key)) {
        if (std::exchange(has_assignments, true)) refuse(places[i], "{} is given twice", assignments_key);
        take_assignments(places[i + 1], read);
      } else {
        take_number(places[i], places[i + 1], read);
      }
    }
    return read;
  }

 private:
  using Place = YamlNode::Place;
  using Kind = YamlNode::Kind;

  template <class... Args>
  [[noreturn]] void refuse(const Place& place, fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, fmt::format("line {}", place.line), why, std::forward<Args>(args)...);
  }

  static bool is_key(const Place& place, std::string_view key) {
    return place.node->kind == Kind::scalar && place.node->text == key;
  }

  // A scalar's text, or what else there is.
  static std::string shown(const Place& place) {
    constexpr std::size_t most = 60;
    if (place.node->kind != Kind::scalar) return place.node->kind == Kind::list ? "a list" : "a map";
    const std::string& text = place.node->text;
    return text.size() <= most ? fmt::format("'{}'", text) : fmt::format("'{}...'", text.substr(0, most));
  }

  // The map that has the assignments, wherever it stands; of a file without assignments its outermost.
  const YamlNode& balancer() const {
    const YamlNode* found = nullptr;
    for (const YamlNode& node : nodes_) {
      if (node.kind != Kind::map || !has_assignments(node)) continue;
      if (found != nullptr)
        refuse({node.line, &node}, "is a second map with {}; the first is in line {}", assignments_key,
               found->line);
      found = &node;
    }
    if (found != nullptr) return *found;
    if (nodes_.empty() || nodes_.front().kind != Kind::map)
      throw parse_error(file_, "", "is YAML without a map that has {}", assignments_key);
    return nodes_.front();
  }

  static bool has_assignments(const YamlNode& map) {
    for (std::size_t i = 0; i < map.places.size(); i += 2)
      if (is_key(map.places[i], assignments_key)) return true;
    return false;
  }

  void take_number(const Place& key, const Place& value, TrtllmYaml& read) const {
    if (key.node->kind != Kind::scalar || !is_number_key(key.node->text))
      refuse(key, "{} is no key of a TensorRT-LLM load balancer", shown(key));
    const std::string& name = key.node->text;
    const auto number = plain_number(value);
    if (!number) refuse(value, "{}: {} is not a whole number", name, shown(value));
    if (!read.numbers.emplace(name, *number).second) refuse(key, "{} is given twice", name);
  }

  void take_assignments(const Place& layers, TrtllmYaml& read) {
    if (layers.node->kind != Kind::map)
      refuse(layers, "{} is {}, not a map of layers", assignments_key, shown(layers));
    const auto& places = layers.node->places;
    for (std::size_t i = 0; i < places.size(); i += 2) {
      const Place& key = places[i];
      const auto layer = key.node->kind == Kind::scalar ? whole_number(key.node->text) : std::nullopt;
      if (!layer || *layer < 0 || *layer >= max_layers)
        refuse(key, "{} is not the number of a layer", shown(key));
      const auto [row, fresh] = read.assignments.try_emplace(*layer);
      if (!fresh) refuse(key, "layer {} is given twice", *layer);
      take_row(places[i + 1], row->second);
    }
  }

  void take_row(const Place& list, PhysicalRow& row) {
    if (list.node->kind != Kind::list) refuse(list, "{} is not a list of experts", shown(list));
    for (const Place& slot : list.node->places) {
      const auto expert = plain_number(slot);
      if (!expert) refuse(slot, "{} is not an expert", shown(slot));
      // A list may stand for many by its aliases.
      if (--budget_ < 0) refuse(list, "takes more memory than a file of this size may ask for");
      row.push_back(*expert);
    }
  }

  static std::optional<std::int64_t> plain_number(const Place& place) {
    return place.node->is_plain ? whole_number(place.node->text) : std::nullopt;
  }

  const std::deque<YamlNode>& nodes_;
  const std::string& file_;
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
  return TrtllmParser(parse_yaml(without_mark(text), source.name()), source.name(), text.size()).parse();
}

}  // namespace evenkeel::internal
