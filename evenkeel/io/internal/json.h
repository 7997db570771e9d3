// JSON from files: a document that is read and never changed, and every refusal a ParseError that names file
// and key.
//
// Method     the text is looked at twice. A scan counts what each container holds; then nlohmann-json's
//            tokenizer parses, and every value goes to its place in one array of values of 16 bytes, the
//            children of a container side by side and those of an object sorted by key.
// Cost       linear in the text, and a sort of each object's keys.
// Memory     16 bytes a value and the bytes of its texts. While a text is parsed, with that text, about
//            11 times its size at most (brackets alone); 9 times for a list of one digit each, 3 to 4 times
//            for numbers of 4 digits and more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/text.h"

namespace evenkeel::internal {

inline constexpr int max_json_depth = 16;

// A value of a document, which must outlive it. What is asked of a value that is not of the kind aborts.
class Json {
 public:
  bool is_null() const { return kind_ == Kind::null; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  bool is_number() const { return is_number_integer() || is_number_float(); }
  bool is_number_integer() const { return kind_ == Kind::integer || kind_ == Kind::unsigned_integer; }
  // A whole number of 0 or more.
  bool is_number_unsigned() const { return kind_ == Kind::unsigned_integer; }
  bool is_number_float() const { return kind_ == Kind::real; }
  bool is_string() const { return kind_ == Kind::text; }
  bool is_array() const { return kind_ == Kind::list; }
  bool is_object() const { return kind_ == Kind::object; }
  bool is_structured() const { return is_array() || is_object(); }
  // "null", "boolean", "number", "string", "array" or "object".
  const char* type_name() const;

  // bool, a number (of any type that a JSON number has), std::string or std::string_view.
  template <class T>
  T get() const;

  // Elements of a list or members of an object; 0 of null, 1 of anything else.
  std::size_t size() const;
  bool empty() const { return size() == 0; }

  // Of a list.
  const Json& operator[](std::size_t i) const;
  const Json& front() const { return (*this)[0]; }
  const Json* begin() const { return is_array() ? content_.children : nullptr; }

  // Of an object; end() where it has no such key, or is no object.
  const Json* find(std::string_view key) const;
  const Json* end() const { return is_array() ? content_.children + size_ : nullptr; }
  bool contains(std::string_view key) const { return find(key) != end(); }
  // The key must be there.
  const Json& operator[](std::string_view key) const;

  // The members of an object in the order of their keys.
  struct Item {
    std::string key;
    const Json& value;
  };
  auto items() const {
    const auto item = [members = content_.children](std::uint32_t i) {
      return Item{std::string(members[2 * i].text()), members[2 * i + 1]};
    };
    return std::views::iota(std::uint32_t{0}, num_members()) | std::views::transform(item);
  }

  // JSON in one line.
  std::string dump() const;

  friend bool operator==(const Json& value, std::string_view text) {
    return value.is_string() && value.text() == text;
  }

 protected:
  enum class Kind : std::uint8_t { null, boolean, integer, unsigned_integer, real, text, list, object };

  Json() = default;
  Json(const Json&) = default;
  Json& operator=(const Json&) = default;
  std::string_view text() const { return {content_.text, size_}; }

 private:
  friend class JsonBuilder;

  std::uint32_t num_members() const;
  bool boolean() const;
  double number() const;
  std::int64_t signed_number() const;
  std::string_view string() const;
  void append_to(std::string& out) const;

  union Content {
    bool boolean;
    std::int64_t integer;
    std::uint64_t unsigned_integer;
    double real;
    const char* text;
    const Json* children;  // of an object key, value, key, value ...
  };
  Content content_;
  std::uint32_t size_;  // of a text bytes, of a container elements or members
  Kind kind_;
};
static_assert(sizeof(Json) == 16);

template <class T>
T Json::get() const {
  if constexpr (std::is_same_v<T, bool>) {
    return boolean();
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(number());
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(signed_number());
  } else {
    return T(string());
  }
}

// The outermost value, and all that is below it.
class JsonDocument : public Json {
 public:
  JsonDocument(JsonDocument&& other) noexcept = default;
  JsonDocument& operator=(JsonDocument&& other) noexcept = default;

 private:
  friend class JsonBuilder;
  JsonDocument() = default;

  std::unique_ptr<Json[]> values_;
  std::unique_ptr<char[]> texts_;
};

// Parses text that stands at byte `begin` of the file. Throws ParseError: the text is not JSON, has a NUL in
// it, gives a key twice in an object, or is nested too deep.
JsonDocument parse_json(std::string_view text, const std::string& file, std::int64_t begin = 0);
JsonDocument read_json(const ByteSource& source);
// With the numbers that Python's json writes and JSON does not have (NaN, Infinity) as null.
JsonDocument read_config_json(const ByteSource& source);

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
// Element `i` of a list of whole numbers that messages call `key`.
std::int64_t integer_at(const Json& list, std::size_t i, const std::string& file, const std::string& key);

// Throws ParseError if a load is negative, or all together are above 2^63-1.
void require_loads(std::span<const std::int64_t> loads, const std::string& file, const std::string& key);

}  // namespace evenkeel::internal
