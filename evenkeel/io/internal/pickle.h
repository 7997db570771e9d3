// Python pickles of plain data, as torch.save writes them. Nothing is ever run: a pickle is a small program
// whose instructions can call anything, and this reader knows only those that make numbers, texts, lists,
// tuples and dictionaries. A call is kept as a call, and only of the names that the reader of the file
// allows.
//
// Values lie in one list and refer to each other by place in it, so that neither depth nor a cycle can hurt.
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

  // `allowed` are the "module name" pairs that may be referred to. Throws ParseError: `where` and the byte.
  Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed, std::string file,
         std::string where);

  Id root() const { return root_; }
  Kind kind(Id id) const { return values_[id].kind; }
  // Of an integer or a boolean.
  std::int64_t integer(Id id) const { return values_[id].number; }
  // Of a text, or of a name ("module name").
  const std::string& text(Id id) const { return texts_[static_cast<std::size_t>(values_[id].number)]; }
  // Of a list or tuple its elements; of a dict key, value, key, value...; of a call name and arguments (a
  // tuple); of a persistent id the one value that names it.
  std::span<const Id> items(Id id) const { return lists_[static_cast<std::size_t>(values_[id].number)]; }
  // The value of a text key; none if `dict` is no dict, or has no such key. Of several the last. Not for
  // several threads at once: a dict is sorted when it is first asked, since many may refer to one.
  std::optional<Id> find(Id dict, std::string_view key) const;
  // All values of a kind.
  std::vector<Id> all_of(Kind kind) const;
  // "a dict", for messages.
  std::string_view kind_name(Id id) const;

 private:
  friend class PickleMachine;
  struct Value {
    Kind kind = Kind::none;
    std::int64_t number = 0;  // itself, or a place in texts_ or lists_
  };

  std::vector<Value> values_;
  std::vector<std::string> texts_;
  std::vector<std::vector<Id>> lists_;
  Id root_ = 0;
  mutable std::map<std::int64_t, std::map<std::string_view, Id>> sorted_;  // by place in lists_
};

}  // namespace evenkeel::internal
