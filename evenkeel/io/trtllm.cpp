#include "evenkeel/io/trtllm.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/internal/trtllm_yaml.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

using namespace internal;

namespace {

// The layers to take: those asked for, or all, ascending.
std::vector<int> layers_in(const TrtllmYaml& yaml, const PlacementFormatOptions& options,
                           const std::string& file) {
  std::vector<int> layers;
  if (options.layers) {
    const LayerNumbers chosen(*options.layers, "moe_layers");
    for (int layer : chosen.numbers()) {
      if (!yaml.assignments.contains(layer))
        throw InvalidArgument("moe_layers", fmt::format("{} has no layer {}", file, layer));
      layers.push_back(layer);
    }
  } else {
    for (const auto& [layer, row] : yaml.assignments) layers.push_back(static_cast<int>(layer));
  }
  return layers;
}

// A number of the file, if it has it.
std::optional<int> number_in(const TrtllmYaml& yaml, const char* key, int least, int most,
                             const std::string& file) {
  const auto found = yaml.numbers.find(key);
  if (found == yaml.numbers.end()) return std::nullopt;
  if (found->second < least || found->second > most)
    throw parse_error(file, key, "is {}; allowed: {}..{}", found->second, least, most);
  return static_cast<int>(found->second);
}

std::optional<int> ranks_in(const TrtllmYaml& yaml, const std::string& file) {
  return number_in(yaml, "ep_size", 1, max_ranks, file);
}

// Beside what the caller says: the file's own number of ranks, where it has one.
RowsShape shape_of(const TrtllmYaml& yaml, PlacementFormatOptions options, const std::string& file) {
  if (const auto ep_size = ranks_in(yaml, file)) {
    if (options.num_ranks.value_or(*ep_size) != *ep_size)
      throw InvalidArgument("ranks",
                            fmt::format("{}, but {} has ep_size {}", *options.num_ranks, file, *ep_size),
                            fmt::format("{}, or a placement for {}", *ep_size, *options.num_ranks));
    options.num_ranks = ep_size;
  }
  return rows_shape(file, options);
}

}  // namespace

void write_trtllm_placement(const Placement& placement, const PlacementFormatOptions& options,
                            const std::string& path) {
  const auto rows = physical_rows(placement, "TensorRT-LLM");
  const auto numbers = layer_numbers(placement, options, "trtllm");
  if (options.num_hidden_layers) num_hidden_layers(numbers, options);
  const int layer_updates = options.layer_updates_per_iter.value_or(0);
  if (layer_updates < 0)
    throw InvalidArgument("layer_updates_per_iter", fmt::format("{}", layer_updates), "0 or more");
  std::string text = fmt::format("{}:\n", assignments_key);
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += fmt::format("  {}: {}\n", numbers[i], row_text(rows[i]));
  text += fmt::format("layer_updates_per_iter: {}\nnum_slots: {}\n", layer_updates, rows.front().size());
  write_file(path, text);
}

std::optional<int> trtllm_num_ranks(const ByteSource& source) {
  return ranks_in(parse_trtllm_yaml(source), source.name());
}

PlacementFile read_trtllm_placement(const ByteSource& source, const PlacementFormatOptions& options) {
  const std::string& file = source.name();
  const TrtllmYaml yaml = parse_trtllm_yaml(source);
  const auto num_slots = yaml.numbers.find("num_slots");
  if (num_slots == yaml.numbers.end()) throw ParseError(file, "num_slots", "is missing");
  if (yaml.assignments.empty())
    throw parse_error(file, std::string(assignments_key), "is missing, or has no layer");
  std::vector<NamedRow> rows;
  std::vector<int> layers = layers_in(yaml, options, file);
  for (int layer : layers) {
    const NamedRow& row =
        rows.emplace_back(NamedRow{fmt::format("{}.{}", assignments_key, layer), yaml.assignments.at(layer)});
    if (const auto slots = std::ssize(row.experts); slots != num_slots->second)
      throw parse_error(file, row.key, "has {} slots, but num_slots is {}", slots, num_slots->second);
  }
  return {
      .placement =
          placement_of_rows(rows, shape_of(yaml, options, file)).numbered(LayerNumbers(std::move(layers))),
      .layer_updates_per_iter = number_in(yaml, "layer_updates_per_iter", 0, max_layers, file)};
}

}  // namespace evenkeel
