// How many layers and experts one object of a config.json speaks of, and which layers have the experts
// (docs/formats.md#layers-with-experts).
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/io/model_layers.h"
#include "evenkeel/model/family.h"

namespace evenkeel::internal {

// By which a config says how many experts a layer has.
inline constexpr std::array<std::string_view, 5> expert_count_keys = {
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts"};

bool speaks_of_experts(const ConfigKeys& config);
// By whichever key says it.
std::optional<int> hidden_layers(const ConfigKeys& config);
// 0 where no key says it. Throws ParseError where one says that there are none.
int num_experts(const ConfigKeys& config);
// `family` decides where no key says it; null where none is known. Throws ParseError as read_model_layers()
// does.
ModelLayers layers_of(const ConfigKeys& config, const Family* family);

}  // namespace evenkeel::internal
