#include "evenkeel/io/internal/number_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/fractional_loads.h"
#include "evenkeel/io/internal/profile_json.h"

namespace evenkeel::internal {

namespace {

void append_reals(const Json& list, std::size_t level, std::vector<std::int64_t>& shape,
                  std::vector<double>& reals, const std::string& file, const std::string& key) {
  if (!list.is_array())
    throw ParseError(file, key, fmt::format("is a JSON {}, not a list", list.type_name()));
  if (shape[level] < 0) shape[level] = std::ssize(list);
  if (shape[level] != std::ssize(list))
    throw ParseError(file, key,
                     fmt::format("has {} elements where the first had {}", list.size(), shape[level]));
  for (std::size_t i = 0; i < list.size(); ++i) {
    // The words for a message cost more than the number.
    const auto at = [&] { return fmt::format("{}[{}]", key, i); };
    if (level + 1 < shape.size()) {
      append_reals(list[i], level + 1, shape, reals, file, at());
    } else if (list[i].is_number()) {
      reals.push_back(list[i].get<double>());
    } else {
      throw ParseError(file, at(), fmt::format("is a JSON {}, not a number", list[i].type_name()));
    }
  }
}

}  // namespace

std::size_t list_depth(const Json& list) {
  std::size_t depth = 0;
  for (const Json* at = &list; at->is_array(); at = &at->front()) {
    ++depth;
    if (at->empty()) break;
  }
  return depth;
}

bool has_fractions(const Json& list) {
  if (list.is_array()) return std::any_of(list.begin(), list.end(), has_fractions);
  return list.is_number_float() && list.get<double>() != std::floor(list.get<double>());
}

std::vector<std::int64_t> nested_reals(const Json& list, std::size_t levels, const std::string& file,
                                       const std::string& key, std::vector<double>& reals) {
  std::vector<std::int64_t> shape(levels, -1);
  append_reals(list, 0, shape, reals, file, key);
  for (std::int64_t& length : shape) length = std::max<std::int64_t>(length, 0);
  return shape;
}

IntArray nested_loads(const Json& list, std::size_t levels, const std::string& file, const std::string& key,
                      std::vector<std::string>& notes) {
  if (!has_fractions(list)) return nested_integers(list, levels, file, key);
  std::vector<double> reals;
  IntArray array{.shape = nested_reals(list, levels, file, key, reals), .values = {}};
  ScaledLoads scaled = scaled_loads(reals, file, key);
  scaled.note_in(notes);
  array.values = std::move(scaled.loads);
  return array;
}

}  // namespace evenkeel::internal
