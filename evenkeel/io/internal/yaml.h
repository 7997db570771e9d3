// YAML from files, as a tree that is read and never changed. libyaml parses it.
//
// Method     libyaml's events become nodes in one list, in the order of the text; each says where its subtree
//            ends. An alias (*id001, which PyYAML writes for a list that is there twice) stays an alias, so
//            that a small file cannot become a large tree.
// Cost       linear; 16 bytes a node and the bytes of its scalars.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace evenkeel::internal {

inline constexpr std::size_t max_yaml_depth = 16;

class Yaml {
 public:
  using Id = std::uint32_t;
  enum class Kind : std::uint8_t { scalar, list, map };

  // Throws ParseError with the line's number: the text is not YAML, is nested too deep, or has an alias of
  // nothing, or a second document.
  Yaml(std::string_view text, const std::string& file);

  // Of an alias everything is that of the node it stands for, but its line and what follows it.
  bool empty() const { return nodes_.empty(); }
  Id root() const { return 0; }
  Kind kind(Id id) const { return at(id).kind; }
  std::int64_t line(Id id) const { return nodes_[id].line; }
  // Of a scalar.
  std::string_view text(Id id) const { return std::string_view(scalars_).substr(at(id).begin, at(id).size); }
  // Whether a scalar stands without quotes.
  bool is_plain(Id id) const { return at(id).is_plain; }
  // Of a list its elements, of a map key, value, key, value...: from first() by next() to end().
  Id first(Id id) const { return target(id) + 1; }
  Id end(Id id) const { return at(id).end; }
  Id next(Id id) const { return nodes_[id].end; }
  bool is_alias(Id id) const { return nodes_[id].is_alias; }
  // All nodes, in the order of the text.
  Id size() const { return static_cast<Id>(nodes_.size()); }
  // "a map", for messages.
  const char* kind_name(Id id) const;

 private:
  friend class YamlBuilder;
  struct Node {
    Id end;
    std::uint32_t line;
    std::uint32_t begin;  // of a scalar in scalars_; of an alias what it stands for
    std::uint32_t size : 28;
    Kind kind : 2;
    bool is_plain : 1;
    bool is_alias : 1;
  };
  static_assert(sizeof(Node) == 16);

  Id target(Id id) const { return nodes_[id].is_alias ? nodes_[id].begin : id; }
  const Node& at(Id id) const { return nodes_[target(id)]; }

  std::deque<Node> nodes_;
  std::string scalars_;
};

}  // namespace evenkeel::internal
