#include "evenkeel/io/internal/json.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace evenkeel::internal {

namespace {

void empty_lists(Json& json) {
  if (json.is_object())
    for (auto& [key, value] : json.get_ref<Json::object_t&>()) empty_lists(value);
  if (!json.is_array()) return;
  for (Json& value : json.get_ref<Json::array_t&>()) empty_lists(value);
  json.clear();
}

// Calls append(list, i, key) for every number. shape[level] is the length of all lists of that level, -1
// until the first is seen.
template <class Append>
void walk(const Json& list, std::size_t level, std::vector<std::int64_t>& shape, const std::string& file,
          const std::string& key, const Append& append) {
  if (!list.is_array()) throw parse_error(file, key, "is a JSON {}, not a list", list.type_name());
  if (shape[level] < 0) shape[level] = std::ssize(list);
  if (shape[level] != std::ssize(list))
    throw parse_error(file, key, "has {} elements, but the first list has {}", list.size(), shape[level]);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (level + 1 == shape.size())
      append(list, i, key);
    else
      walk(list[i], level + 1, shape, file, fmt::format("{}[{}]", key, i), append);
  }
}

template <class Number, class Read>
WholeArray<Number> nested(const Json& list, std::size_t levels, const std::string& file,
                          const std::string& key, const Read& read) {
  WholeArray<Number> array{std::vector<std::int64_t>(levels, -1), {}};
  std::size_t count = 0;
  walk(list, 0, array.shape, file, key, [&](const Json&, std::size_t, const std::string&) { ++count; });
  array.values.reserve(count);
  walk(list, 0, array.shape, file, key, [&](const Json& numbers, std::size_t i, const std::string& where) {
    array.values.push_back(read(numbers, i, file, where));
  });
  for (std::int64_t& length : array.shape) length = std::max<std::int64_t>(length, 0);
  return array;
}

// A fast path: building the field name for a message costs more than reading the number.
std::int64_t integer_at(const Json& list, std::size_t i, const std::string& file, const std::string& key) {
  const bool is_above = list[i].is_number_unsigned() && list[i].get<std::int64_t>() < 0;
  if (list[i].is_number_integer() && !is_above) return list[i].get<std::int64_t>();
  return JsonField(list, file, key)[i].integer();
}

double real_at(const Json& list, std::size_t i, const std::string& file, const std::string& key) {
  return list[i].is_number() ? list[i].get<double>() : JsonField(list, file, key)[i].number();
}

}  // namespace

JsonDocument::~JsonDocument() {
  empty_lists(*this);
}

JsonField JsonField::operator[](std::string_view member) const {
  if (!value_->is_object()) fail("is not a JSON object");
  if (auto found = find(member)) return *std::move(found);
  throw ParseError(*file_, key_ + (key_.empty() ? "" : ".") + std::string(member), "is missing");
}

std::optional<JsonField> JsonField::find(std::string_view member) const {
  const auto found = value_->find(member);
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
  // Programs that count in floating point write 12.0. Beyond 2^53 such a number may be inexact.
  const double number = value_->get<double>();
  if (!(std::abs(number) <= 0x1p53) || number != std::floor(number))
    fail("{} is not {} whole number", number, std::abs(number) > 0x1p53 ? "an exact" : "a");
  return static_cast<std::int64_t>(number);
}

int JsonField::integer(std::int64_t least, std::int64_t most) const {
  const std::int64_t number = integer();
  if (number < least || number > most) fail("is {}; allowed: {}..{}", number, least, most);
  return static_cast<int>(number);
}

std::vector<std::int64_t> JsonField::integers() const {
  return nested_integers(*value_, 1, *file_, key_).values;
}

double JsonField::number() const {
  if (!value_->is_number()) fail("is a JSON {}, not a number", value_->type_name());
  return value_->get<double>();
}

void require_format(const JsonField& object, std::string_view format) {
  const JsonField stated = object["format"];
  if (*stated != format) stated.fail("is {}, not \"{}\"", stated->dump(), format);
}

std::size_t list_depth(const Json& list) {
  std::size_t depth = 0;
  for (const Json* at = &list; at->is_array(); at = &at->front()) {
    ++depth;
    if (at->empty()) break;
  }
  return depth;
}

bool has_fractions(const Json& list) {
  if (list.is_array()) return std::ranges::any_of(list.get_ref<const Json::array_t&>(), has_fractions);
  return list.is_number_float() && list.get<double>() != std::floor(list.get<double>());
}

IntArray nested_integers(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key) {
  return nested<std::int64_t>(list, levels, file, key, integer_at);
}

DoubleArray nested_reals(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key) {
  return nested<double>(list, levels, file, key, real_at);
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
