// JSON objects of reports.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

using Json = nlohmann::ordered_json;

// The JSON on one line of pure ASCII, because a terminal also interprets U+009B, and because every locale
// prints ASCII the same. Invalid UTF-8 becomes replacement characters.
std::string line_of(const Json& json);
// Also adds the key `axes`, which says for each file how its unnamed arrays were read. If `axes` is empty, no
// key is added.
std::string line_of(Json json, const std::map<std::string, std::string>& axes);

// The value; null if it is not known.
template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Layer numbers by row; null if they are not known.
inline Json numbers_or_null(const LayerNumbers& layers) {
  return layers.known() ? Json(layers.numbers()) : Json(nullptr);
}

}  // namespace evenkeel::internal
