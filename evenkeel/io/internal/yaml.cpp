#include "evenkeel/io/internal/yaml.h"

#include <fmt/format.h>
#include <yaml.h>

#include <map>

#include "evenkeel/base/check.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

namespace {

std::string_view view(const yaml_char_t* text) {
  return reinterpret_cast<const char*>(text);
}

// Makes nodes of libyaml's events.
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

  std::deque<YamlNode> parse() {
    do {
      yaml_event_delete(&event_);
      event_ = {};
      if (yaml_parser_parse(&parser_, &event_) != 1) refuse_syntax();
      take_event();
    } while (event_.type != YAML_STREAM_END_EVENT);
    return std::move(nodes_);
  }

 private:
  void take_event() {
    const auto& data = event_.data;
    switch (event_.type) {
      case YAML_DOCUMENT_START_EVENT:
        if (has_document_) refuse("begins a second document; one is read");
        has_document_ = true;
        return;
      case YAML_SCALAR_EVENT:
        add({.kind = YamlNode::Kind::scalar,
             .is_plain = data.scalar.style == YAML_PLAIN_SCALAR_STYLE,
             .line = line(),
             .text = std::string(reinterpret_cast<const char*>(data.scalar.value), data.scalar.length)},
            data.scalar.anchor);
        return;
      case YAML_ALIAS_EVENT:
        return add_alias(view(data.alias.anchor));
      case YAML_SEQUENCE_START_EVENT:
        return open(YamlNode::Kind::list, data.sequence_start.anchor);
      case YAML_MAPPING_START_EVENT:
        return open(YamlNode::Kind::map, data.mapping_start.anchor);
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        open_.pop_back();
        return;
      default:
        return;
    }
  }

  YamlNode& add(YamlNode node, const yaml_char_t* anchor) {
    YamlNode& added = nodes_.emplace_back(std::move(node));
    put(added);
    if (anchor != nullptr) anchors_.insert_or_assign(std::string(view(anchor)), &added);
    return added;
  }

  void add_alias(std::string_view anchor) {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse("is an alias of nothing before it");
    put(*found->second);
  }

  void open(YamlNode::Kind kind, const yaml_char_t* anchor) {
    if (open_.size() == max_yaml_depth) refuse("nested deeper than {}", max_yaml_depth);
    open_.push_back(&add({.kind = kind, .line = line()}, anchor));
  }

  void put(const YamlNode& node) {
    if (!open_.empty()) open_.back()->places.push_back({line(), &node});
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
  bool has_document_ = false;
  std::deque<YamlNode> nodes_;
  std::vector<YamlNode*> open_;
  std::map<std::string, const YamlNode*, std::less<>> anchors_;
};

}  // namespace

std::deque<YamlNode> parse_yaml(std::string_view text, const std::string& file) {
  return YamlParser(text, file).parse();
}

}  // namespace evenkeel::internal
