#include "evenkeel/report/internal/json.h"

namespace evenkeel::internal {

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string line_of(Json json, const std::map<std::string, std::string>& axes) {
  if (!axes.empty()) json["axes"] = axes;
  return line_of(json);
}

}  // namespace evenkeel::internal
