// Reads Python pickles of plain data, as torch.save writes them. A pickle is a small program whose
// instructions can call any function. This reader never calls one: it knows only the instructions that make
// numbers, texts, lists, tuples and dictionaries. A call in the pickle is stored as a value, and is refused
// unless it is of a name in `allowed`.
//
// Values are stored in one list and refer to each other by index, so deep nesting and cycles are harmless.
// Memory  about 20 bytes for each instruction of the pickle.
// Source  the Python Software Foundation's Lib/pickletools.py, protocol 2 (docs/formats.md#pt).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::internal {

class Pickle {
 public:
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    name,
    list,
    tuple,
    dict,
    call,
    persistent
  };
  using Id = std::uint32_t;

  // `allowed` lists the "module name" pairs that may occur. Throws ParseError with `where` and the byte.
  Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed, std::string file,
         std::string where);

  Id root() const { return root_; }
  Kind kind(Id id) const { return values_[id].kind; }
  // The value of an integer or a boolean.
  std::int64_t integer(Id id) const { return values_[id].number; }
  // The value of a text, or of a name ("module name").
  const std::string& text(Id id) const { return texts_[static_cast<std::size_t>(values_[id].number)]; }
  // List or tuple: the elements. Dict: key, value, key, value... Call: the name and the arguments (a tuple).
  // Persistent id: the one value that names it.
  std::span<const Id> items(Id id) const { return lists_[static_cast<std::size_t>(values_[id].number)]; }
  // The value of a text key, the last one if there are several; nullopt if `dict` is not a dict or has no
  // such key. Not thread-safe: the first search in a dict sorts its keys, since many values may refer to the
  // same dict.
  std::optional<Id> find(Id dict, std::string_view key) const;
  // All values of a kind.
  std::vector<Id> all_of(Kind kind) const;
  // "a dict", for messages.
  std::string_view kind_name(Id id) const;

 private:
  friend class PickleMachine;
  struct Value {
    Kind kind = Kind::none;
    std::int64_t number = 0;  // the value, or an index into texts_ or lists_
  };

  std::vector<Value> values_;
  std::vector<std::string> texts_;
  std::vector<std::vector<Id>> lists_;
  Id root_ = 0;
  mutable std::map<std::int64_t, std::map<std::string_view, Id>> sorted_;  // by index into lists_
};

}  // namespace evenkeel::internal
