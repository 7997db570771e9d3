// JSON from files, parsed by nlohmann-json. All errors are ParseErrors that name file and key.
//
// Cost       linear in the text.
// Memory     16 bytes a number, since lists have no spare capacity. That is 8 times the text for numbers of
//            one digit, and 2 to 3 times for ordinary numbers. Lists, objects and strings take more; a text
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
// Limit on lists, objects and strings in one JSON text. A safetensors header with the most tensors has 3
// million.
inline constexpr int max_json_parts = 1 << 22;

using Json = nlohmann::json;

// The outermost value of a text. Its destructor first empties its lists, since Json's own destructor copies
// every list before freeing it.
class JsonDocument : public Json {
 public:
  explicit JsonDocument(Json&& value) : Json(std::move(value)) {}
  JsonDocument(JsonDocument&& other) noexcept = default;
  JsonDocument& operator=(JsonDocument&& other) noexcept = default;
  ~JsonDocument();
};

// Parses text that begins at byte `begin` of the file. Throws ParseError if the text is not JSON, contains a
// NUL, gives a key twice in an object, is nested too deeply, or has too many parts.
JsonDocument parse_json(std::string_view text, const std::string& file, std::int64_t begin = 0);
JsonDocument read_json(const ByteSource& source);
// Also accepts NaN and Infinity, which Python's json writes, and reads them as null.
JsonDocument read_config_json(const ByteSource& source);

// Calls `take` with each key of the outermost object until it returns false. The text may continue after the
// object, as in JSON Lines, or end in the middle of it.
void for_each_outer_key(std::string_view text, const std::function<bool(std::string_view)>& take);

// Reads JSON Lines: calls `take` with every line that is not blank and its number, from 1. Lines are read one
// at a time, so the file may be larger than memory. Throws ParseError with the line's number if a line is not
// JSON or is longer than max_text_bytes.
void for_each_json_line(const ByteSource& source,
                        const std::function<void(JsonDocument&&, std::int64_t)>& take);
// Throws ParseError if the file is not JSON by its content; `what` is what the caller expects ("a topology").
void require_json(const ByteSource& source, std::string_view what);

// A JSON value with its file and key for messages. The document and the file's name must outlive it.
class JsonField {
 public:
  JsonField(const Json& value, const std::string& file, std::string key = "")
      : value_(&value), file_(&file), key_(std::move(key)) {}
  JsonField(const Json& value, std::string&& file, std::string key = "") = delete;

  const Json& operator*() const { return *value_; }
  const Json* operator->() const { return value_; }
  const std::string& file() const { return *file_; }
  const std::string& key() const { return key_; }

  // A member. Throws ParseError if there is no such member, or the value is not an object.
  JsonField operator[](std::string_view member) const;
  // nullopt if there is no such member.
  std::optional<JsonField> find(std::string_view member) const;
  // nullopt also if the member is null.
  std::optional<JsonField> stated(std::string_view member) const;
  // An element of a list.
  JsonField operator[](std::size_t i) const;

  // These throw ParseError if the value has another type.
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

// Throws ParseError unless the object's key "format" has the value `format`.
void require_format(const JsonField& object, std::string_view format);

// How deeply lists are nested, judged by their first elements.
std::size_t list_depth(const Json& list);
// Whether any number in nested lists is not whole. Then they hold counts, not ids.
bool has_fractions(const Json& list);
// Reads whole numbers from lists nested `levels` deep. Throws ParseError unless all lists of a level have the
// same length.
IntArray nested_integers(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key);
// As nested_integers(), for any numbers.
DoubleArray nested_reals(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key);

// Throws ParseError if a load is negative, or the total is above 2^63-1.
void require_loads(std::span<const std::int64_t> loads, const std::string& file, const std::string& key);

}  // namespace evenkeel::internal
