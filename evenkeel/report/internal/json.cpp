#include "evenkeel/report/internal/json.h"

namespace evenkeel::internal {

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace evenkeel::internal
