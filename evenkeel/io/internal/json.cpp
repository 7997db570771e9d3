#include "evenkeel/io/internal/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "evenkeel/base/check.h"

namespace evenkeel::internal {

const char* Json::type_name() const {
  constexpr std::array names = {"null", "boolean", "number", "number", "number", "string", "array", "object"};
  return names[static_cast<std::size_t>(kind_)];
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
  const auto key_of = [&](std::uint32_t member) { return content_.children[2 * member].text(); };
  const auto members = std::views::iota(std::uint32_t{0}, size_);
  const auto found = std::ranges::lower_bound(members, key, {}, key_of);
  return found != members.end() && key_of(*found) == key ? &content_.children[2 * *found + 1] : end();
}

const Json& Json::operator[](std::string_view key) const {
  const Json* const found = find(key);
  EVENKEEL_CHECK(found != end());
  return *found;
}

std::uint32_t Json::num_members() const {
  EVENKEEL_CHECK(is_object());
  return size_;
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

JsonField JsonField::operator[](std::string_view member) const {
  if (!value_->is_object()) throw ParseError(*file_, "", "is not a JSON object");
  if (auto found = find(member)) return *std::move(found);
  throw ParseError(*file_, key_ + (key_.empty() ? "" : ".") + std::string(member), "is missing");
}

std::optional<JsonField> JsonField::find(std::string_view member) const {
  const Json* const found = value_->find(member);
  if (found == value_->end()) return std::nullopt;
  return JsonField(*found, *file_, key_ + (key_.empty() ? "" : ".") + std::string(member));
}

std::optional<JsonField> JsonField::stated(std::string_view member) const {
  auto found = find(member);
  return found && (*found)->is_null() ? std::nullopt : found;
}

JsonField JsonField::operator[](std::size_t i) const {
  return {(*value_)[i], *file_, key_ + '[' + std::to_string(i) + ']'};
}

std::int64_t JsonField::integer() const {
  if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    fail("{} is above 2^63-1", value_->get<std::uint64_t>());
  if (value_->is_number_integer()) return value_->get<std::int64_t>();
  if (!value_->is_number_float()) fail("is a JSON {}, not a whole number", value_->type_name());
  // Programs that count in floating point write 12.0; beyond 2^53 such a number is no longer certain.
  const double number = value_->get<double>();
  if (!(std::abs(number) <= 0x1p53) || number != std::floor(number))
    fail("{} is not a whole number{}", number, std::abs(number) > 0x1p53 ? " that is exact" : "");
  return static_cast<std::int64_t>(number);
}

int JsonField::integer(std::int64_t least, std::int64_t most) const {
  const std::int64_t number = integer();
  if (number < least || number > most) fail("is {}; allowed: {}..{}", number, least, most);
  return static_cast<int>(number);
}

std::vector<std::int64_t> JsonField::integers() const {
  if (!value_->is_array()) fail("is a JSON {}, not a list", value_->type_name());
  std::vector<std::int64_t> numbers;
  numbers.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) numbers.push_back(integer_at(*value_, i, *file_, key_));
  return numbers;
}

double JsonField::number() const {
  if (!value_->is_number()) fail("is a JSON {}, not a number", value_->type_name());
  return value_->get<double>();
}

void require_format(const JsonField& object, std::string_view format) {
  const JsonField stated = object["format"];
  if (*stated != format) stated.fail("is {}, not \"{}\"", stated->dump(), format);
}

std::int64_t integer_at(const Json& list, std::size_t i, const std::string& file, const std::string& key) {
  const Json& value = list[i];
  // The words for a message cost more than the number.
  if (value.is_number_integer() && !value.is_number_unsigned()) return value.get<std::int64_t>();
  if (value.is_number_unsigned() && value.get<std::int64_t>() >= 0) return value.get<std::int64_t>();
  return JsonField(list, file, key)[i].integer();
}

void require_loads(std::span<const std::int64_t> loads, const std::string& file, const std::string& key) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    if (loads[i] < 0) throw parse_error(file, key, "element {} is {}; a load is 0 or more", i, loads[i]);
    if (__builtin_add_overflow(total, loads[i], &total))
      throw ParseError(file, key, "the total of loads is above 2^63-1");
  }
}

}  // namespace evenkeel::internal
