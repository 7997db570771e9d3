#include "evenkeel/io/internal/moe_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

void require_shape(const IntArray& counts, const std::string& file, const std::string& key) {
  const std::size_t dimensions = counts.shape.size();
  if (dimensions != 2 && dimensions != 3)
    throw ParseError(file, key,
                     fmt::format("shape {} is neither [layers, experts] nor [steps, layers, experts]",
                                 to_text(counts.shape)));
  const std::int64_t layers = counts.shape[dimensions - 2];
  const std::int64_t experts = counts.shape[dimensions - 1];
  if (layers < 1 || experts < 1 || layers > max_layers || experts > max_trace_experts)
    throw ParseError(file, key,
                     fmt::format("shape {} is not of 1..{} layers of 1..{} experts", to_text(counts.shape),
                                 max_layers, max_trace_experts));
}

bool without_load(std::span<const std::int64_t> loads) {
  return std::all_of(loads.begin(), loads.end(), [](std::int64_t load) { return load == 0; });
}

// All steps added to the first. The total was checked, so no sum overflows.
void add_steps(IntArray& counts) {
  if (counts.shape.size() == 2) return;
  const std::size_t cells = static_cast<std::size_t>(counts.shape[1] * counts.shape[2]);
  counts.values.resize(std::max(counts.values.size(), cells), 0);
  for (std::size_t i = cells; i < counts.values.size(); ++i) counts.values[i % cells] += counts.values[i];
  counts.values.resize(cells);
  counts.shape.erase(counts.shape.begin());
}

}  // namespace

RoutingFile routing_of_counts(IntArray counts, const std::string& file, const std::string& key,
                              CountRows rows) {
  require_shape(counts, file, key);
  require_loads(counts.values, file, key);
  add_steps(counts);
  const std::size_t experts = static_cast<std::size_t>(counts.shape[1]);
  RoutingFile made{.what = "counts", .format = {}, .trace = nullptr, .profile = {}, .layers = {}};
  std::vector<std::int64_t> loads;
  int num_layers = 0;
  for (int layer = 0; layer < counts.shape[0]; ++layer) {
    const auto row = std::span(counts.values).subspan(static_cast<std::size_t>(layer) * experts, experts);
    if (rows == CountRows::hidden_layers) {
      if (without_load(row)) continue;
      made.layers.push_back(layer);
    }
    loads.insert(loads.end(), row.begin(), row.end());
    ++num_layers;
  }
  if (without_load(loads)) throw ParseError(file, key, "has no assignment in any layer");
  made.profile = RoutingProfile(num_layers, static_cast<int>(experts), std::move(loads), {});
  return made;
}

RoutingFile routing_of_tokens(TokenIds tokens, int num_experts, const std::string& file) {
  const std::size_t layers = tokens.layers.size();
  const std::size_t width = static_cast<std::size_t>(tokens.top_k);
  std::vector<bool> used_layer(layers, false);
  std::size_t used_width = 0;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.ids[i] == no_expert) continue;
    used_layer[i / width % layers] = true;
    used_width = std::max(used_width, i % width + 1);
  }
  if (used_width == 0) throw ParseError(file, "", "has no assignment of any token");
  std::vector<std::int32_t> kept;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i)
    if (used_layer[i / width % layers] && i % width < used_width) kept.push_back(tokens.ids[i]);
  RoutingFile made{.what = "trace", .format = {}, .trace = nullptr, .profile = {}, .layers = {}};
  for (std::size_t l = 0; l < layers; ++l)
    if (used_layer[l]) made.layers.push_back(tokens.layers[l]);
  const MemoryTrace::Shape shape{.num_layers = static_cast<int>(made.layers.size()),
                                 .top_k = static_cast<int>(used_width),
                                 .num_experts = num_experts};
  made.trace = std::make_unique<MemoryTrace>(shape, std::move(kept), std::vector<float>{},
                                             std::vector<std::int64_t>{}, file);
  return made;
}

}  // namespace evenkeel::internal
