#include "evenkeel/io/internal/number_lists.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "evenkeel/io/internal/found_routing.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

namespace {

// Of the lists that are `levels` deep, together.
std::size_t num_elements(const Json& list, std::size_t levels) {
  if (!list.is_array()) return 0;
  if (levels == 1) return list.size();
  std::size_t count = 0;
  for (const Json& element : list) count += num_elements(element, levels - 1);
  return count;
}

// Calls append(list, i, key) for every number. A length of `shape` is that of all lists of its level, -1
// until one is met.
template <class Append>
void walk(const Json& list, std::size_t level, std::vector<std::int64_t>& shape, const std::string& file,
          const std::string& key, const Append& append) {
  if (!list.is_array()) throw parse_error(file, key, "is a JSON {}, not a list", list.type_name());
  if (shape[level] < 0) shape[level] = std::ssize(list);
  if (shape[level] != std::ssize(list))
    throw parse_error(file, key, "has {} elements where the first had {}", list.size(), shape[level]);
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
  array.values.reserve(num_elements(list, levels));
  walk(list, 0, array.shape, file, key, [&](const Json& numbers, std::size_t i, const std::string& where) {
    array.values.push_back(read(numbers, i, file, where));
  });
  for (std::int64_t& length : array.shape) length = std::max<std::int64_t>(length, 0);
  return array;
}

// The words for a message cost more than the number.
double real_at(const Json& list, std::size_t i, const std::string& file, const std::string& key) {
  return list[i].is_number() ? list[i].get<double>() : JsonField(list, file, key)[i].number();
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

IntArray nested_loads(const Json& list, std::size_t levels, const std::string& file, const std::string& key,
                      std::vector<std::string>& notes) {
  if (!has_fractions(list)) return nested_integers(list, levels, file, key);
  const DoubleArray reals = nested_reals(list, levels, file, key);
  return {reals.shape, scaled_loads(reals.values, file, key, notes)};
}

}  // namespace evenkeel::internal
