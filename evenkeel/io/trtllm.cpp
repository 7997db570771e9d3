#include "evenkeel/io/trtllm.h"

#include <fmt/format.h>

#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/internal/trtllm_yaml.h"

namespace evenkeel {

namespace {

using internal::TrtllmYaml;

constexpr const char* assignments_key = "initial_global_assignments";

// The layers to take: those asked for, or all, ascending.
std::vector<std::int64_t> layers_in(const TrtllmYaml& yaml, const PlacementFormatOptions& options,
                                    const std::string& file) {
  std::vector<std::int64_t> layers;
  if (options.layers) {
    for (int layer : *options.layers) {
      if (!yaml.assignments.contains(layer))
        throw InvalidArgument("moe_layers", fmt::format("{} has no layer {}", file, layer));
      layers.push_back(layer);
    }
  } else {
    for (const auto& [layer, row] : yaml.assignments) layers.push_back(layer);
  }
  return layers;
}

}  // namespace

void write_trtllm_placement(const Placement& placement, const PlacementFormatOptions& options,
                            const std::string& path) {
  const auto rows = internal::physical_rows(placement, "TensorRT-LLM");
  const auto numbers = internal::layer_numbers(placement.num_layers(), options);
  if (options.num_hidden_layers) internal::num_hidden_layers(numbers, options);
  if (options.layer_updates_per_iter < 0)
    throw InvalidArgument("layer_updates_per_iter", fmt::format("{}", options.layer_updates_per_iter),
                          "0 or more");
  AtomicFile file(path);
  file.write(fmt::format("{}:\n", assignments_key));
  for (std::size_t i = 0; i < rows.size(); ++i)
    file.write(fmt::format("  {}: {}\n", numbers[i], internal::row_text(rows[i])));
  file.write(fmt::format("layer_updates_per_iter: {}\nnum_slots: {}\n", options.layer_updates_per_iter,
                         rows.front().size()));
  file.commit();
}

Placement read_trtllm_placement(const ByteSource& source, const PlacementFormatOptions& options) {
  const std::string& file = source.name();
  const TrtllmYaml yaml = internal::parse_trtllm_yaml(source);
  const auto num_slots = yaml.numbers.find("num_slots");
  if (num_slots == yaml.numbers.end()) throw ParseError(file, "num_slots", "is missing");
  if (yaml.assignments.empty()) throw ParseError(file, assignments_key, "is missing, or has no layer");
  std::vector<internal::PhysicalRow> rows;
  std::vector<std::string> keys;
  for (std::int64_t layer : layers_in(yaml, options, file)) {
    rows.push_back(yaml.assignments.at(layer));
    keys.push_back(fmt::format("{}.{}", assignments_key, layer));
    if (std::ssize(rows.back()) != num_slots->second)
      throw ParseError(
          file, keys.back(),
          fmt::format("has {} slots, but num_slots is {}", rows.back().size(), num_slots->second));
  }
  return internal::placement_of_rows(rows, keys, internal::rows_shape(file, options));
}

}  // namespace evenkeel
