// One JSON object, as a report gives it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel::internal {

using Json = nlohmann::ordered_json;

// On one line, in ASCII alone: a terminal obeys U+009B too, and no locale minds. Text that is not UTF-8 gets
// replacement characters.
std::string line_of(const Json& json);
// With `axes` besides, how arrays that nobody named were read, by file; without that key where there is none.
std::string line_of(Json json, const std::map<std::string, std::string>& axes);

// A number that is not known is null.
template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// By row, where they are known.
inline Json numbers_or_null(const LayerNumbers& layers) {
  return layers.known() ? Json(layers.numbers()) : Json(nullptr);
}

}  // namespace evenkeel::internal
