// Reads TensorRT-LLM's load balancer: named numbers and lists of experts by layer, in YAML (with libyaml).
#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/server_placements.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

constexpr int max_yaml_depth = 16;

struct NumberKey {
  std::string_view name;
  int least;
  int most;
  std::optional<int> ServerPlacement::*said;
};
constexpr std::array<NumberKey, 3> number_keys = {{
    {"num_slots", 0, max_experts, &ServerPlacement::num_slots},
    {"layer_updates_per_iter", 0, max_layers, &ServerPlacement::layer_updates_per_iter},
    {"ep_size", 1, max_ranks, &ServerPlacement::num_ranks},
}};

struct YamlNode {
  enum class Kind : std::uint8_t { scalar, list, map };
  Kind kind;
  bool is_plain = false;  // a scalar without quotes
  std::uint32_t line = 0;
  std::string text = {};                    // of a scalar
  std::vector<const YamlNode*> items = {};  // list: the elements; map: key, value, key, value...

  bool is(std::string_view key) const { return kind == Kind::scalar && text == key; }
};

// Builds nodes from libyaml's events. An alias (*id001, which PyYAML writes for a repeated list) becomes a
// pointer to its node. So a small file cannot become a large tree, but a node can contain itself.
class YamlParser {
 public:
  YamlParser(std::string_view text, const std::string& file) : file_(file) {
    EVENKEEL_CHECK(yaml_parser_initialize(&parser_) == 1);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
  }
  ~YamlParser() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  YamlParser(const YamlParser&) = delete;
  YamlParser& operator=(const YamlParser&) = delete;

  // All nodes in the order of the text. Throws ParseError with the line's number if the text is not YAML, is
  // nested too deeply, has an alias without an anchor, or has a second document.
  std::deque<YamlNode> parse() {
    next();  // the text begins
    if (next() == YAML_STREAM_END_EVENT) return {};
    parse_node(0);
    next();  // the document ends
    if (next() != YAML_STREAM_END_EVENT) refuse("begins a second document; only one is allowed");
    return std::move(nodes_);
  }

 private:
  // Returns nullptr at the end of a list or map.
  const YamlNode* parse_node(int depth) {
    const yaml_event_type_t type = next();
    const auto& data = event_.data;
    if (type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT) return nullptr;
    if (type == YAML_ALIAS_EVENT) {
      const auto found = anchors_.find(view(data.alias.anchor));
      if (found == anchors_.end()) refuse("is an alias without an anchor before it");
      return found->second;
    }
    YamlNode& node = nodes_.emplace_back();
    node.line = line();
    if (type == YAML_SCALAR_EVENT) {
      node.is_plain = data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
      node.text.assign(reinterpret_cast<const char*>(data.scalar.value), data.scalar.length);
      name(node, data.scalar.anchor);
      return &node;
    }
    if (depth == max_yaml_depth) refuse("is nested deeper than {} levels", max_yaml_depth);
    const bool is_list = type == YAML_SEQUENCE_START_EVENT;
    node.kind = is_list ? YamlNode::Kind::list : YamlNode::Kind::map;
    name(node, is_list ? data.sequence_start.anchor : data.mapping_start.anchor);
    while (const YamlNode* item = parse_node(depth + 1)) node.items.push_back(item);
    return &node;
  }

  void name(const YamlNode& node, const yaml_char_t* anchor) {
    if (anchor != nullptr) anchors_.insert_or_assign(std::string(view(anchor)), &node);
  }

  static std::string_view view(const yaml_char_t* text) { return reinterpret_cast<const char*>(text); }

  yaml_event_type_t next() {
    yaml_event_delete(&event_);
    event_ = {};
    if (yaml_parser_parse(&parser_, &event_) != 1) refuse_syntax();
    return event_.type;
  }

  std::uint32_t line() const { return static_cast<std::uint32_t>(event_.start_mark.line + 1); }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, fmt::format("line {}", line()), why, std::forward<Args>(args)...);
  }

  [[noreturn]] void refuse_syntax() const {
    const char* const problem = parser_.problem == nullptr ? "cannot be parsed" : parser_.problem;
    if (parser_.error == YAML_READER_ERROR)
      throw parse_error(file_, fmt::format("byte {}", parser_.problem_offset), "is not YAML: {}", problem);
    std::string why = fmt::format("is not YAML: {}", problem);
    if (parser_.context != nullptr)
      why += fmt::format(" {} that begins in line {}", parser_.context, parser_.context_mark.line + 1);
    throw ParseError(file_, fmt::format("line {}", parser_.problem_mark.line + 1), why);
  }

  const std::string& file_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
  std::deque<YamlNode> nodes_;
  std::map<std::string, const YamlNode*, std::less<>> anchors_;
};

// Accepts only the notation that means the same number in every version of YAML: 010 is 8 in YAML 1.1.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  return digits.size() > 1 && digits.front() == '0' ? std::nullopt : std::optional(value);
}

std::optional<std::int64_t> plain_number(const YamlNode& node) {
  return node.is_plain ? whole_number(node.text) : std::nullopt;
}

class BalancerReader {
 public:
  BalancerReader(std::string_view text, const std::string& file)
      : nodes_(YamlParser(text, file).parse()),
        file_(file),
        budget_((std::int64_t{1} << 20) + 4 * std::ssize(text)) {}

  ServerPlacement read() {
    ServerPlacement all;
    std::set<std::string_view> seen;
    const auto& items = balancer().items;
    for (std::size_t i = 0; i < items.size(); i += 2) {
      const YamlNode& key = *items[i];
      if (key.is(assignments_key))
        read_assignments(*items[i + 1], all);
      else
        read_number(key, *items[i + 1], all);
      if (!seen.insert(key.text).second) refuse(key, "{} is given twice", key.text);
    }
    if (!all.num_slots) throw ParseError(file_, "num_slots", "is missing");
    if (all.rows.empty()) throw ParseError(file_, assignments_key, "has no layer");
    return all;
  }

 private:
  using Kind = YamlNode::Kind;

  template <class... Args>
  [[noreturn]] void refuse(const YamlNode& node, fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, fmt::format("line {}", node.line), why, std::forward<Args>(args)...);
  }

  // The node for messages: a scalar's text, "a list" or "a map".
  static std::string shown(const YamlNode& node) {
    constexpr std::size_t most = 60;
    if (node.kind != Kind::scalar) return node.kind == Kind::list ? "a list" : "a map";
    return fmt::format("'{}{}'", node.text.substr(0, most), node.text.size() <= most ? "" : "...");
  }

  // Finds the map with the assignments anywhere in the file.
  const YamlNode& balancer() const {
    const YamlNode* found = nullptr;
    for (const YamlNode& node : nodes_)
      for (std::size_t i = 0; node.kind == Kind::map && i < node.items.size(); i += 2) {
        if (!node.items[i]->is(assignments_key) || found == &node) continue;
        if (found != nullptr)
          refuse(node, "is a second map with {}; the first is in line {}; keep one of the two",
                 assignments_key, found->line);
        found = &node;
      }
    if (found == nullptr)
      throw parse_error(file_, "", "is YAML, but has no map with the key {}", assignments_key);
    return *found;
  }

  void read_number(const YamlNode& key, const YamlNode& value, ServerPlacement& all) const {
    const auto* known =
        std::ranges::find_if(number_keys, [&](const NumberKey& each) { return key.is(each.name); });
    if (known == number_keys.end())
      refuse(key, "{} is not a key of a TensorRT-LLM load balancer", shown(key));
    const auto number = plain_number(value);
    if (!number) refuse(value, "{}: {} is not a whole number", known->name, shown(value));
    if (*number < known->least || *number > known->most)
      refuse(value, "{} is {}; allowed: {}..{}", known->name, *number, known->least, known->most);
    all.*known->said = static_cast<int>(*number);
  }

  void read_assignments(const YamlNode& layers, ServerPlacement& all) {
    if (layers.kind != Kind::map)
      refuse(layers, "{} is {}, not a map of layers", assignments_key, shown(layers));
    std::map<int, PhysicalRow> rows;
    for (std::size_t i = 0; i < layers.items.size(); i += 2) {
      const YamlNode& key = *layers.items[i];
      const auto layer = whole_number(key.text);
      if (!layer || *layer < 0 || *layer >= max_layers)
        refuse(key, "{} is not the number of a layer", shown(key));
      if (!rows.emplace(static_cast<int>(*layer), read_row(*layers.items[i + 1])).second)
        refuse(key, "layer {} is given twice", *layer);
    }
    std::vector<int> numbers;
    for (auto& [layer, row] : rows) {
      numbers.push_back(layer);
      all.rows.push_back({fmt::format("{}.{}", assignments_key, layer), std::move(row)});
    }
    all.layers = LayerNumbers(std::move(numbers));
  }

  PhysicalRow read_row(const YamlNode& list) {
    if (list.kind != Kind::list) refuse(list, "{} is not a list of experts", shown(list));
    // Counted against a budget, since a list may be repeated by aliases.
    budget_ -= std::ssize(list.items);
    if (budget_ < 0)
      refuse(list, "needs far more memory than the size of the file allows; is the file damaged?");
    PhysicalRow row;
    for (const YamlNode* slot : list.items) {
      const auto expert = plain_number(*slot);
      if (!expert) refuse(*slot, "{} is not an expert number", shown(*slot));
      row.push_back(*expert);
    }
    return row;
  }

  const std::deque<YamlNode> nodes_;
  const std::string& file_;
  std::int64_t budget_;  // experts that may still be read
};

}  // namespace

ServerPlacement read_trtllm(const ByteSource& source) {
  const std::string text = read_text(source, "YAML");
  return BalancerReader(without_mark(text), source.name()).read();
}

std::string trtllm_text(const ServerRows& placement) {
  std::string text = fmt::format("{}:\n", assignments_key);
  for (std::size_t i = 0; i < placement.rows.size(); ++i)
    text += fmt::format("  {}: {}\n", placement.layers[i], row_text(placement.rows[i]));
  return text + fmt::format("layer_updates_per_iter: {}\nnum_slots: {}\n", placement.layer_updates_per_iter,
                            placement.rows.front().size());
}

}  // namespace evenkeel::internal
