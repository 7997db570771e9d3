// JSON from files, parsed by nlohmann-json, with every refusal a ParseError that names file and key.
//
// Cost       linear in the text.
// Memory     a list has room for its elements and no more: 16 bytes a number, 8 times a text of one digit
//            each and 2 to 3 times one of ordinary numbers. Lists, objects and texts take more, and a text
//            may have at most max_json_parts of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/text.h"

namespace evenkeel::internal {

inline constexpr int max_json_depth = 16;
// Lists, objects and texts of one JSON; a header of safetensors with as many tensors as it may have has 3
// million.
inline constexpr int max_json_parts = 1 << 22;

using Json = nlohmann::json;

// The outermost value. Json's own destructor copies every list once more before it frees it.
class JsonDocument : public Json {
 public:
  explicit JsonDocument(Json&& value) : Json(std::move(value)) {}
  JsonDocument(JsonDocument&& other) noexcept = default;
  JsonDocument& operator=(JsonDocument&& other) noexcept = default;
  ~JsonDocument();
};

// Parses text that stands at byte `begin` of the file. Throws ParseError: the text is not JSON, has a NUL in
// it, gives a key twice in an object, is nested too deep, or has too many parts or too long a one.
JsonDocument parse_json(std::string_view text, const std::string& file, std::int64_t begin = 0);
JsonDocument read_json(const ByteSource& source);
// With the numbers that Python's json writes and JSON does not have (NaN, Infinity) as null.
JsonDocument read_config_json(const ByteSource& source);

// Calls `take` with each key of the outermost object until it returns false. A text may go on behind the
// object, as JSON lines do, and may end in the middle of it.
void for_each_outer_key(std::string_view text, const std::function<bool(std::string_view)>& take);

// JSON lines: calls `take` with every line that is not blank and its number, from 1. Lines are read one at a
// time, so that the file may be longer than memory. Throws ParseError with the line's number if one is not
// JSON, or above max_text_bytes.
void for_each_json_line(const ByteSource& source,
                        const std::function<void(JsonDocument&&, std::int64_t)>& take);
// Throws ParseError if the content of a file is another format; `what` is what is JSON ("a topology").
void require_json(const ByteSource& source, std::string_view what);

// A value with the file and the key by which messages call it. The document and the name of the file must
// outlive it.
class JsonField {
 public:
  JsonField(const Json& value, const std::string& file, std::string key = "")
      : value_(&value), file_(&file), key_(std::move(key)) {}
  JsonField(const Json& value, std::string&& file, std::string key = "") = delete;

  const Json& operator*() const { return *value_; }
  const Json* operator->() const { return value_; }
  const std::string& file() const { return *file_; }
  const std::string& key() const { return key_; }

  // A member. Throws ParseError if there is none, or this is no object.
  JsonField operator[](std::string_view member) const;
  // None where there is none.
  std::optional<JsonField> find(std::string_view member) const;
  // None also where it is null.
  std::optional<JsonField> stated(std::string_view member) const;
  // An element of a list.
  JsonField operator[](std::size_t i) const;

  // Throw ParseError if the value is not of the kind.
  std::int64_t integer() const;
  int integer(std::int64_t least, std::int64_t most) const;
  std::vector<std::int64_t> integers() const;
  double number() const;

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(*file_, key_, why, std::forward<Args>(args)...);
  }

 private:
  const Json* value_;
  const std::string* file_;
  std::string key_;
};

// Throws ParseError unless the object's "format" is this.
void require_format(const JsonField& object, std::string_view format);

// How deep the lists are, by their first elements.
std::size_t list_depth(const Json& list);
// Whether any number of a list, however deep, is not whole: then it holds counts, never ids.
bool has_fractions(const Json& list);
// A list of lists of ... of whole numbers, `levels` deep; all lists of a level are equally long. Throws
// ParseError otherwise.
IntArray nested_integers(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key);
// As nested_integers(), of any numbers.
DoubleArray nested_reals(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key);

// Throws ParseError if a load is negative, or all together are above 2^63-1.
void require_loads(std::span<const std::int64_t> loads, const std::string& file, const std::string& key);

}  // namespace evenkeel::internal
