// JSON objects of reports.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

using Json = nlohmann::ordered_json;

// One line of pure ASCII: a terminal also interprets U+009B, and no locale changes ASCII. Invalid UTF-8
// becomes replacement characters.
std::string line_of(const Json& json);
// Adds the key `axes`: how unnamed arrays were read, by file. No key is added if it is empty.
std::string line_of(Json json, const std::map<std::string, std::string>& axes);

// null if the number is not known.
template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Layer numbers by row; null if they are not known.
inline Json numbers_or_null(const LayerNumbers& layers) {
  return layers.known() ? Json(layers.numbers()) : Json(nullptr);
}

}  // namespace evenkeel::internal
