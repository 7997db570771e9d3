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
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "evenkeel/io/byte_source.h"
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
  class Items {
   public:
    class Iterator {
     public:
      explicit Iterator(const Json* at) : at_(at) {}
      Item operator*() const { return {std::string(at_[0].text()), at_[1]}; }
      Iterator& operator++() {
        at_ += 2;
        return *this;
      }
      bool operator==(const Iterator&) const = default;

     private:
      const Json* at_;
    };
    Items(const Json* begin, std::size_t members) : begin_(begin), members_(members) {}
    Iterator begin() const { return Iterator(begin_); }
    Iterator end() const { return Iterator(begin_ + 2 * members_); }

   private:
    const Json* begin_;
    std::size_t members_;
  };
  Items items() const;

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

// The rest throw ParseError if the value is not there or not of the kind; `key` is how messages call it.
const Json& member(const Json& object, const char* key, const std::string& file);
std::int64_t integer(const Json& value, const std::string& file, const std::string& key);
int small_integer(const Json& value, std::int64_t least, std::int64_t most, const std::string& file,
                  const std::string& key);
// Element `i` of a list that messages call `key`.
std::int64_t integer_at(const Json& list, std::size_t i, const std::string& file, const std::string& key);
std::vector<std::int64_t> integers(const Json& list, const std::string& file, const std::string& key);

// Throws ParseError if a load is negative, or all together are above 2^63-1.
void require_loads(std::span<const std::int64_t> loads, const std::string& file, const std::string& key);

}  // namespace evenkeel::internal
