#include "evenkeel/io/internal/profile_json.h"

#include <fmt/format.h>

#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/number_lists.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

RoutingProfile make_profile(const std::string& file, IntArray loads, std::optional<IntArray> transitions) {
  require_loads(loads.values, file, "loads");
  if (transitions) require_loads(transitions->values, file, "transitions");
  const int layers = static_cast<int>(loads.shape[0]);
  const int experts = static_cast<int>(loads.shape[1]);
  return RoutingProfile(layers, experts, std::move(loads.values),
                        transitions ? std::move(transitions->values) : std::vector<std::int64_t>{});
}

namespace {

// A list of `depth` levels of equal lengths, the last of whole numbers, appended flat.
void flatten(const Json& list, std::size_t level, IntArray& out, const std::string& file,
             const std::string& key) {
  if (!list.is_array())
    throw ParseError(file, key, fmt::format("is a JSON {}, not a list", list.type_name()));
  if (out.shape[level] < 0) out.shape[level] = std::ssize(list);
  if (out.shape[level] != std::ssize(list))
    throw ParseError(file, key,
                     fmt::format("has {} elements where the first had {}", list.size(), out.shape[level]));
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (level + 1 == out.shape.size()) {
      out.values.push_back(integer_at(list, i, file, key));
    } else {
      flatten(list[i], level + 1, out, file, fmt::format("{}[{}]", key, i));
    }
  }
}

}  // namespace

IntArray nested_integers(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key) {
  IntArray array;
  array.shape.assign(levels, -1);
  flatten(list, 0, array, file, key);
  for (std::int64_t& length : array.shape)
    if (length < 0) length = 0;
  return array;
}

namespace {

// The format and the sizes that a file states besides its loads must be true.
void require_agreement(const Json& json, const IntArray& loads, const std::string& file) {
  const auto format = json.find("format");
  if (format != json.end() && format->is_string() && format->get<std::string>().starts_with("evenkeel.") &&
      *format != kProfileFormat)
    throw ParseError(file, "format", fmt::format("is {}, not \"{}\"", format->dump(), kProfileFormat));
  const char* const keys[] = {"num_layers", "num_experts"};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto said = json.find(keys[i]);
    if (said == json.end()) continue;
    if (const std::int64_t number = integer(*said, file, keys[i]); number != loads.shape[i])
      throw ParseError(file, keys[i], fmt::format("is {}, but loads are of {}", number, loads.shape[i]));
  }
}

}  // namespace

namespace {

RoutingProfile loads_and_transitions(const Json& json, const std::string& file) {
  if (has_fractions(member(json, "loads", file)))
    throw ParseError(file, "loads",
                     "has numbers that are not whole, and a profile's are counts; averages are read as "
                     "{\"logical_count\": [[...]]} or as lists alone");
  IntArray loads = nested_integers(member(json, "loads", file), 2, file, "loads");
  if (loads.shape[0] < 1 || loads.shape[1] < 1)
    throw ParseError(file, "loads", "is empty; it is a list by layer of lists by expert");
  require_agreement(json, loads, file);
  const auto found = json.find("transitions");
  if (found == json.end() || found->is_null()) return make_profile(file, std::move(loads), std::nullopt);
  IntArray transitions = nested_integers(*found, 3, file, "transitions");
  const bool one_layer = loads.shape[0] == 1 && transitions.values.empty();
  if (!one_layer &&
      transitions.shape != std::vector<std::int64_t>{loads.shape[0] - 1, loads.shape[1], loads.shape[1]})
    throw ParseError(
        file, "transitions",
        fmt::format("lengths {} are not [layers - 1, experts, experts]", to_text(transitions.shape)));
  return make_profile(file, std::move(loads), std::move(transitions));
}

}  // namespace

RoutingProfile profile_of_json(const Json& json, const std::string& file) {
  RoutingProfile profile = loads_and_transitions(json, file);
  profile.set_layers(layers_in(json, profile.num_layers(), file));
  return profile;
}

}  // namespace evenkeel::internal
