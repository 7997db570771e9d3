// YAML from files, as a tree that is read and never changed. libyaml parses it.
//
// An alias (*id001, which PyYAML writes for a list that is there twice) leads to the node that it stands for,
// so that a small file cannot become a large tree, but can have a node inside itself.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::internal {

inline constexpr std::size_t max_yaml_depth = 16;

struct YamlNode {
  enum class Kind : std::uint8_t { scalar, list, map };
  // Where a node stands: at its own line, or at that of an alias.
  struct Place {
    std::uint32_t line;
    const YamlNode* node;
  };

  Kind kind;
  bool is_plain = false;  // a scalar without quotes
  std::uint32_t line = 0;
  std::string text = {};           // of a scalar
  std::vector<Place> places = {};  // of a list its elements, of a map key, value, key, value...
};

// All nodes in the order of the text, which begins with the outermost. Throws ParseError with the line's
// number: the text is not YAML, is nested too deep, or has an alias of nothing, or a second document.
std::deque<YamlNode> parse_yaml(std::string_view text, const std::string& file);

}  // namespace evenkeel::internal
