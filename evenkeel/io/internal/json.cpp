#include "evenkeel/io/internal/json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>

#include "evenkeel/base/error.h"
#include "evenkeel/base/stop.h"

namespace evenkeel::internal {

namespace {

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." without its label.
std::string plain(const Json::exception& error) {
  const std::string_view text = error.what();
  const std::size_t label = text.find("] ");
  return std::string(label == std::string_view::npos ? text : text.substr(label + 2));
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file, std::int64_t begin) {
  // Of a key given twice a parser keeps one; another program might keep the other.
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    stop_if_asked();
    if (depth > max_json_depth)
      throw ParseError(file, "", fmt::format("nested deeper than {}", max_json_depth));
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw ParseError(file, parsed.get<std::string>(), "is given twice");
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    throw ParseError(file, fmt::format("byte {}", begin + static_cast<std::int64_t>(error.byte)),
                     plain(error));
  } catch (const Json::exception& error) {
    throw ParseError(file, "", plain(error));
  }
}

Json read_json(const ByteSource& source) {
  return parse_json(read_text(source, "JSON"), source.name());
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

std::vector<std::int64_t> integers(const Json& list, const std::string& file, const std::string& key) {
  if (!list.is_array())
    throw ParseError(file, key, fmt::format("is a JSON {}, not a list", list.type_name()));
  std::vector<std::int64_t> numbers;
  numbers.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i)
    numbers.push_back(integer(list[i], file, fmt::format("{}[{}]", key, i)));
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
