#include "evenkeel/io/internal/layer_numbers.h"

#include <fmt/format.h>

#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

void require_ascending(const std::vector<int>& layers) {
  int before = -1;
  for (int layer : layers) {
    if (layer <= before || layer >= max_layers)
      throw InvalidArgument("moe_layers", fmt::format("layer {} after layer {}", layer, before),
                            fmt::format("ascending numbers in 0..{}", max_layers - 1));
    before = layer;
  }
}

namespace {

std::vector<int> all_layers(int count) {
  std::vector<int> layers(static_cast<std::size_t>(count));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

}  // namespace

std::vector<int> layer_numbers(int num_layers, const PlacementFormatOptions& options) {
  if (!options.layers) return all_layers(num_layers);
  require_ascending(*options.layers);
  if (std::ssize(*options.layers) != num_layers)
    throw InvalidArgument(
        "moe_layers",
        fmt::format("{} layers are named, but the placement has {}", options.layers->size(), num_layers),
        fmt::format("{} layers", num_layers));
  return *options.layers;
}

int num_hidden_layers(const std::vector<int>& numbers, const PlacementFormatOptions& options) {
  const int least = numbers.back() + 1;
  const int stated = options.num_hidden_layers.value_or(least);
  if (stated < least || stated > max_layers)
    throw InvalidArgument(
        "num_hidden_layers",
        fmt::format("{}, but the placement's last layer is number {} of the model", stated, numbers.back()),
        fmt::format("{}..{}", least, max_layers));
  return stated;
}

std::vector<int> chosen_layers(int num_rows, const PlacementFormatOptions& options, const std::string& file) {
  if (!options.layers) return all_layers(num_rows);
  require_ascending(*options.layers);
  if (!options.layers->empty() && options.layers->back() >= num_rows)
    throw InvalidArgument("moe_layers", fmt::format("{} has no layer {}", file, options.layers->back()),
                          fmt::format("0..{}", num_rows - 1));
  return *options.layers;
}

RowsShape rows_shape(const std::string& file, const PlacementFormatOptions& options) {
  if (!options.num_ranks)
    throw InvalidArgument("ranks", fmt::format("{} does not say how many there are", file), "1 or more");
  if (*options.num_ranks < 1)
    throw InvalidArgument("ranks", fmt::format("{} ranks", *options.num_ranks), "1 or more");
  return {.file = file, .num_ranks = *options.num_ranks, .num_experts = options.num_experts};
}

}  // namespace evenkeel::internal
