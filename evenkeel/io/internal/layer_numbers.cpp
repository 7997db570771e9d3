#include "evenkeel/io/internal/layer_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

constexpr const char* layers_key = "layers";

// The possible layer numbers of rows that have no numbers in the file; the most likely come first.
std::vector<std::vector<int>> possible_layers(const ModelLayers& model, RowsOf of) {
  std::vector<std::vector<int>> possible = {model.moe_layers, model.all_layers()};
  if (of == RowsOf::placement || model.table_layers.empty()) return possible;
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<int> routed;
    std::ranges::set_difference(possible[i], model.table_layers, std::back_inserter(routed));
    possible.push_back(std::move(routed));
  }
  return possible;
}

std::vector<int> all_layers(int count) {
  std::vector<int> layers(static_cast<std::size_t>(count));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

// The layer numbers of rows, by a model's config. Rows with numbers may be any of the MoE layers, including
// multi-token prediction. Rows without numbers must be all MoE layers, with or without multi-token
// prediction; a recording may also lack the layers that a table routes.
LayerNumbers layers_of_model(const ModelLayers& model, const NumberedRows& rows, int num_experts, RowsOf of) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(
        "model", why,
        fmt::format("the config.json of the recorded model{}",
                    rows.layers.known() ? ""
                                        : "; if only some of its layers were recorded, also "
                                          "--moe-layers (layers=) with those layers"));
  };
  const std::vector<int> all = model.all_layers();
  if (model.num_experts > 0 && num_experts > 0 && model.num_experts != num_experts)
    refuse(fmt::format("has {} experts, but {} has {} experts", model.num_experts, rows.name, num_experts));
  if (rows.layers.known()) {
    if (std::ranges::includes(all, rows.layers.numbers())) return rows.layers;
  } else {
    for (const std::vector<int>& may_be : possible_layers(model, of))
      if (std::ssize(may_be) == rows.num_rows) return LayerNumbers(may_be);
  }
  refuse(fmt::format("has experts in layers {}{}, but {} has {}", to_text(LayerNumbers(model.moe_layers)),
                     model.mtp_layers.empty() ? ""
                                              : fmt::format(" (and {} for multi-token prediction)",
                                                            to_text(LayerNumbers(model.mtp_layers))),
                     rows.name, described(rows.layers, rows.num_rows)));
  return {};
}

}  // namespace

LayerNumbers layers_of(const std::vector<std::int64_t>& stated, int num_rows, const std::string& file) {
  if (std::ssize(stated) != num_rows)
    throw parse_error(file, layers_key, "has {} numbers for {} layers", stated.size(), num_rows);
  std::vector<int> numbers;
  for (std::int64_t layer : stated) {
    if (layer <= (numbers.empty() ? -1 : numbers.back()) || layer >= max_layers)
      throw parse_error(file, layers_key,
                        "layer {} is out of order or too large; allowed: ascending numbers in 0..{}", layer,
                        max_layers - 1);
    numbers.push_back(static_cast<int>(layer));
  }
  return LayerNumbers(std::move(numbers));
}

LayerNumbers layers_in(const ArrayFile& file, int num_rows) {
  if (file.find(layers_key) == nullptr) return {};
  const IntArray stated = read_integers(file, layers_key);
  if (stated.shape.size() != 1)
    throw parse_error(file.name(), layers_key, "shape {} is not [layers]", to_text(stated.shape));
  return layers_of(stated.values, num_rows, file.name());
}

LayerNumbers layers_in(const Json& json, int num_rows, const std::string& file) {
  const auto found = JsonField(json, file).stated(layers_key);
  return found ? layers_of(found->integers(), num_rows, file) : LayerNumbers();
}

ArrayToWrite layers_to_write(const LayerNumbers& layers) {
  const auto numbers =
      std::make_shared<const std::vector<std::int64_t>>(layers.numbers().begin(), layers.numbers().end());
  return integers_to_write(layers_key, {std::ssize(*numbers)}, *numbers, numbers);
}

std::vector<int> layer_numbers_of(const NumberedRows& placement, const PlacementFormatOptions& options,
                                  std::string_view format) {
  if (placement.layers.known()) return placement.layers.numbers();
  if (options.num_hidden_layers.value_or(placement.num_rows) < placement.num_rows)
    throw InvalidArgument(
        "num_hidden_layers",
        fmt::format("{}, but the placement has {} layers", *options.num_hidden_layers, placement.num_rows),
        fmt::format("{} or more", placement.num_rows));
  if (options.num_hidden_layers == placement.num_rows) return all_layers(placement.num_rows);
  throw InvalidArgument("moe_layers",
                        fmt::format("is not given; {} numbers all layers of the model, dense ones too, so "
                                    "evenkeel must know which of them are the placement's {} layers",
                                    format, placement.num_rows),
                        "layer numbers, such as 3-60, or the model's config.json");
}

LayerNumbers layers_from_options(const std::optional<std::vector<int>>& layers,
                                 const std::optional<ModelLayers>& model, const NumberedRows& rows,
                                 int num_experts, RowsOf of) {
  if (!layers) return model ? layers_of_model(*model, rows, num_experts, of) : LayerNumbers();
  const LayerNumbers said(*layers, "moe_layers");
  if (std::ssize(said.numbers()) != rows.num_rows || (rows.layers.known() && rows.layers != said))
    throw InvalidArgument(
        "moe_layers",
        fmt::format("names layers {}, but {} has {}", to_text(said), rows.name,
                    described(rows.layers, rows.num_rows)),
        rows.layers.known() ? fmt::format("{}, or leave it out", to_text(rows.layers))
                            : fmt::format("{} layer number{}", rows.num_rows, rows.num_rows == 1 ? "" : "s"));
  return model ? layers_of_model(*model, {rows.name, said, rows.num_rows}, num_experts, of) : said;
}

int num_hidden_layers(const std::vector<int>& numbers, const PlacementFormatOptions& options) {
  const int least = numbers.back() + 1;
  if (options.model) return std::max(least, options.model->num_hidden_layers);
  const int stated = options.num_hidden_layers.value_or(least);
  if (stated < least || stated > max_layers)
    throw InvalidArgument(
        "num_hidden_layers",
        fmt::format("{}, but the placement's last layer is number {} of the model", stated, numbers.back()),
        fmt::format("{}..{}", least, max_layers));
  return stated;
}

}  // namespace evenkeel::internal
