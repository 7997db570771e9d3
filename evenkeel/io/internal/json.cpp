#include "evenkeel/io/internal/json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/stop.h"

namespace evenkeel::internal {

const char* Json::type_name() const {
  switch (kind_) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "boolean";
    case Kind::integer:
    case Kind::unsigned_integer:
    case Kind::real:
      return "number";
    case Kind::text:
      return "string";
    case Kind::list:
      return "array";
    case Kind::object:
      return "object";
  }
  return "value";
}

std::size_t Json::size() const {
  if (is_null()) return 0;
  return is_structured() ? size_ : 1;
}

const Json& Json::operator[](std::size_t i) const {
  EVENKEEL_CHECK(is_array() && i < size_);
  return content_.children[i];
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return end();
  std::size_t first = 0;
  for (std::size_t count = size_; count > 0;) {
    const std::size_t half = count / 2;
    if (content_.children[2 * (first + half)].text() < key) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first < size_ && content_.children[2 * first].text() == key ? &content_.children[2 * first + 1]
                                                                     : end();
}

const Json& Json::operator[](std::string_view key) const {
  const Json* const found = find(key);
  EVENKEEL_CHECK(found != end());
  return *found;
}

Json::Items Json::items() const {
  EVENKEEL_CHECK(is_object());
  return {content_.children, size_};
}

bool Json::boolean() const {
  EVENKEEL_CHECK(is_boolean());
  return content_.boolean;
}

double Json::number() const {
  EVENKEEL_CHECK(is_number());
  if (kind_ == Kind::real) return content_.real;
  return kind_ == Kind::integer ? static_cast<double>(content_.integer)
                                : static_cast<double>(content_.unsigned_integer);
}

std::int64_t Json::signed_number() const {
  EVENKEEL_CHECK(is_number());
  if (kind_ == Kind::real) return static_cast<std::int64_t>(content_.real);
  return kind_ == Kind::integer ? content_.integer : static_cast<std::int64_t>(content_.unsigned_integer);
}

std::string_view Json::string() const {
  EVENKEEL_CHECK(is_string());
  return text();
}

std::string Json::dump() const {
  std::string out;
  append_to(out);
  return out;
}

void Json::append_to(std::string& out) const {
  if (is_array()) {
    out += '[';
    for (std::size_t i = 0; i < size_; ++i) {
      if (i > 0) out += ',';
      content_.children[i].append_to(out);
    }
    out += ']';
  } else if (is_object()) {
    out += '{';
    for (std::size_t i = 0; i < 2 * size_; ++i) {
      if (i > 0) out += i % 2 == 0 ? ',' : ':';
      content_.children[i].append_to(out);
    }
    out += '}';
  } else if (is_string()) {
    out += nlohmann::json(std::string(text())).dump();
  } else if (is_number_float()) {
    out += nlohmann::json(content_.real).dump();
  } else if (is_number()) {
    out +=
        kind_ == Kind::integer ? std::to_string(content_.integer) : std::to_string(content_.unsigned_integer);
  } else {
    out += is_null() ? "null" : content_.boolean ? "true" : "false";
  }
}

const Json& member(const Json& object, const char* key, const std::string& file) {
  if (!object.is_object()) throw ParseError(file, "", "is not a JSON object");
  const auto found = object.find(key);
  if (found == object.end()) throw ParseError(file, key, "is missing");
  return *found;
}

std::int64_t integer(const Json& value, const std::string& file, const std::string& key) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    throw ParseError(file, key, fmt::format("{} is above 2^63-1", value.get<std::uint64_t>()));
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    // Programs that count in floating point write 12.0; beyond 2^53 such a number is no longer certain.
    const double number = value.get<double>();
    if (std::abs(number) <= 0x1p53 && number == std::floor(number)) return static_cast<std::int64_t>(number);
    throw ParseError(
        file, key,
        fmt::format("{} is not a whole number{}", number, std::abs(number) > 0x1p53 ? " that is exact" : ""));
  }
  throw ParseError(file, key, fmt::format("is a JSON {}, not a whole number", value.type_name()));
}

int small_integer(const Json& value, std::int64_t least, std::int64_t most, const std::string& file,
                  const std::string& key) {
  const std::int64_t number = integer(value, file, key);
  if (number < least || number > most)
    throw ParseError(file, key, fmt::format("is {}; allowed: {}..{}", number, least, most));
  return static_cast<int>(number);
}

std::int64_t integer_at(const Json& list, std::size_t i, const std::string& file, const std::string& key) {
  const Json& value = list[i];
  // The words for a message cost more than the number.
  if (value.is_number_integer() && !value.is_number_unsigned()) return value.get<std::int64_t>();
  if (value.is_number_unsigned() && value.get<std::int64_t>() >= 0) return value.get<std::int64_t>();
  return integer(value, file, fmt::format("{}[{}]", key, i));
}

std::vector<std::int64_t> integers(const Json& list, const std::string& file, const std::string& key) {
  if (!list.is_array())
    throw ParseError(file, key, fmt::format("is a JSON {}, not a list", list.type_name()));
  std::vector<std::int64_t> numbers;
  numbers.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) numbers.push_back(integer_at(list, i, file, key));
  return numbers;
}

void require_loads(std::span<const std::int64_t> loads, const std::string& file, const std::string& key) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    if (loads[i] < 0)
      throw ParseError(file, key, fmt::format("element {} is {}; a load is 0 or more", i, loads[i]));
    if (__builtin_add_overflow(total, loads[i], &total))
      throw ParseError(file, key, "the total of loads is above 2^63-1");
  }
}

}  // namespace evenkeel::internal
