#include "evenkeel/io/internal/yaml.h"

#include <fmt/format.h>
#include <yaml.h>

#include <array>
#include <map>
#include <vector>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

namespace {

// PyYAML names no more than there are lists.
constexpr std::size_t max_anchors = std::size_t{1} << 17;

std::string_view view(const yaml_char_t* text) {
  return reinterpret_cast<const char*>(text);
}

// libyaml's parser and the event it gave last.
class YamlEvents {
 public:
  YamlEvents(std::string_view text, const std::string& file) : file_(file) {
    EVENKEEL_CHECK(yaml_parser_initialize(&parser_) == 1);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
  }
  ~YamlEvents() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  YamlEvents(const YamlEvents&) = delete;
  YamlEvents& operator=(const YamlEvents&) = delete;

  const yaml_event_t& next() {
    yaml_event_delete(&event_);
    event_ = {};
    if (yaml_parser_parse(&parser_, &event_) != 1) refuse_syntax();
    return event_;
  }

  std::size_t line() const { return event_.start_mark.line + 1; }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, fmt::format("line {}", line()), why, std::forward<Args>(args)...);
  }

 private:
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
};

}  // namespace

class YamlBuilder {
 public:
  YamlBuilder(Yaml& yaml, std::string_view text, const std::string& file)
      : yaml_(yaml), events_(text, file) {}

  void run() {
    bool has_document = false;
    while (true) {
      const yaml_event_t& event = events_.next();
      switch (event.type) {
        case YAML_STREAM_END_EVENT:
          return;
        case YAML_DOCUMENT_START_EVENT:
          if (has_document) events_.refuse("begins a second document; one is read");
          has_document = true;
          break;
        case YAML_SCALAR_EVENT:
          add_scalar(event);
          break;
        case YAML_ALIAS_EVENT:
          add_alias(view(event.data.alias.anchor));
          break;
        case YAML_SEQUENCE_START_EVENT:
          open(Yaml::Kind::list, event.data.sequence_start.anchor);
          break;
        case YAML_MAPPING_START_EVENT:
          open(Yaml::Kind::map, event.data.mapping_start.anchor);
          break;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
          yaml_.nodes_[open_.back()].end = yaml_.size();
          open_.pop_back();
          break;
        default:
          break;
      }
    }
  }

 private:
  Yaml::Node& add(Yaml::Kind kind) {
    const Yaml::Id id = yaml_.size();
    return yaml_.nodes_.emplace_back(Yaml::Node{.end = id + 1,
                                                .line = static_cast<std::uint32_t>(events_.line()),
                                                .begin = 0,
                                                .size = 0,
                                                .kind = kind,
                                                .is_plain = false,
                                                .is_alias = false});
  }

  void name(const yaml_char_t* anchor, Yaml::Id id) {
    if (anchor == nullptr) return;
    if (anchors_.size() == max_anchors) events_.refuse("names more than {} values", max_anchors);
    anchors_.insert_or_assign(std::string(view(anchor)), id);
  }

  void add_scalar(const yaml_event_t& event) {
    const auto& scalar = event.data.scalar;
    name(scalar.anchor, yaml_.size());
    Yaml::Node& node = add(Yaml::Kind::scalar);
    node.begin = static_cast<std::uint32_t>(yaml_.scalars_.size());
    if (scalar.length >= std::size_t{1} << 28) events_.refuse("is a text of more than 2^28 bytes");
    node.size = static_cast<std::uint32_t>(scalar.length) & 0xfffffffU;
    node.is_plain = scalar.style == YAML_PLAIN_SCALAR_STYLE;
    yaml_.scalars_.append(reinterpret_cast<const char*>(scalar.value), scalar.length);
  }

  void add_alias(std::string_view anchor) {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) events_.refuse("is an alias of nothing before it");
    Yaml::Node& node = add(yaml_.nodes_[found->second].kind);
    node.begin = found->second;
    node.is_alias = true;
  }

  void open(Yaml::Kind kind, const yaml_char_t* anchor) {
    if (open_.size() == max_yaml_depth) events_.refuse("nested deeper than {}", max_yaml_depth);
    name(anchor, yaml_.size());
    open_.push_back(yaml_.size());
    add(kind);
  }

  Yaml& yaml_;
  YamlEvents events_;
  std::vector<Yaml::Id> open_;
  std::map<std::string, Yaml::Id, std::less<>> anchors_;
};

Yaml::Yaml(std::string_view text, const std::string& file) {
  YamlBuilder(*this, text, file).run();
}

const char* Yaml::kind_name(Id id) const {
  constexpr std::array names = {"a scalar", "a list", "a map"};
  return names[static_cast<std::size_t>(kind(id))];
}

}  // namespace evenkeel::internal
