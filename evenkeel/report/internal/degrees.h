// The degrees of parallelism as JSON, by name.
#pragma once

#include "evenkeel/report/internal/json.h"
#include "evenkeel/training_memory/names.h"

namespace evenkeel::internal {

inline Json json_of(const Parallelism& parallel) {
  Json json = Json::object();
  for (const auto& [name, degree] : degree_names) json[std::string(name)] = parallel.*degree;
  return json;
}

}  // namespace evenkeel::internal
