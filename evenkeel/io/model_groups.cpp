#include "evenkeel/io/model_groups.h"

#include <string>

#include "evenkeel/io/internal/config_layers.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/language_config.h"
#include "evenkeel/io/internal/routing_groups.h"

namespace evenkeel {

using namespace internal;

RoutingGroups read_model_groups(const ByteSource& source, int experts) {
  std::string file;
  const JsonDocument json = read_model_config(source, file);
  const LanguageConfig config = language_config(json, file);
  if (config.family == nullptr || !config.family->tensors || num_experts(config.keys) != experts) return {};
  return routing_groups(config.keys, *config.family, experts).value_or(RoutingGroups{});
}

}  // namespace evenkeel
