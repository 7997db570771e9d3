// The parts that the layers of a config.json have in attention's place, layer by layer: linear attention,
// state spaces, heads of two widths, compressed keys, indexers.
#pragma once

#include <cstdint>
#include <string_view>

#include "evenkeel/io/internal/config_keys.h"
#include "evenkeel/model/family.h"
#include "evenkeel/model/model_description.h"

namespace evenkeel::internal {

inline constexpr int max_width = 1 << 24;
inline constexpr int max_heads = 65536;
// Words of layer_types.
inline constexpr std::string_view sparse_layer = "compressed_sparse_attention";
inline constexpr std::string_view heavy_layer = "heavily_compressed_attention";

// A number of key heads, which divides that of all heads.
std::int64_t key_heads(const ConfigKeys& config, std::string_view key, std::int64_t heads);

// Fills in the layers and the shapes that they need besides model.attention; leaves `layers` empty where all
// are alike. The number of layers, which have experts, and the attention must be known. Throws ParseError.
void read_layer_parts(const ConfigKeys& config, const WeightRule& rule, ModelDescription& model);

}  // namespace evenkeel::internal
