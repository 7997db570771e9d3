#include "cli/layer_options.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/options.h"
#include "evenkeel/base/error.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::cli {

namespace {

// Variance 1.
const double kHiddenAmplitude = std::sqrt(3.0);

DataType parse_type(const std::string& name) {
  for (DataType type : {DataType::f32, DataType::bf16})
    if (name == name_of(type)) return type;
  throw InvalidArgument("--dtype", fmt::format("'{}'", name), "f32, bf16");
}

}  // namespace

MoeShape LayerOptions::shape() const {
  MoeShape shape;
  shape.num_experts = static_cast<int>(experts);
  shape.top_k = static_cast<int>(top_k);
  shape.expert.hidden = hidden;
  shape.expert.intermediate = intermediate;
  shape.expert.activation = activation;
  shape.expert.biases = activation == Activation::clamped_swiglu;
  shape.expert.type = type;
  return shape;
}

void add_layer_options(CLI::App& app, LayerOptions& options) {
  constexpr std::int64_t most_columns = 1 << 20;
  add_whole(app, "--experts", options.experts, 1, max_trace_experts, "Experts of the layer");
  add_whole(app, "--top-k", options.top_k, 1, 1024, "Experts that a token goes to");
  add_whole(app, "--hidden", options.hidden, 1, most_columns, "Width of a token");
  add_whole(app, "--intermediate", options.intermediate, 1, most_columns, "Width inside an expert");
  const auto read_activation = [&options](const CLI::results_t& given) {
    options.activation = parse_activation(given.front());
    return true;
  };
  app.add_option("--activation", read_activation, "swiglu, clamped-swiglu (gpt-oss, with biases) or gelu")
      ->type_name("NAME")
      ->default_str(std::string(name_of(options.activation)));
  const auto read_type = [&options](const CLI::results_t& given) {
    options.type = parse_type(given.front());
    return true;
  };
  app.add_option("--dtype", read_type, "f32 or bf16")
      ->type_name("TYPE")
      ->default_str(std::string(name_of(options.type)));
  add_whole(app, "--seed", options.seed, 0, std::int64_t{1} << 53, "Of weights, tokens and scenarios");
}

Tensor seeded_hidden(const LayerOptions& options, std::int64_t tokens) {
  return seeded(options.type, tokens * options.hidden,
                4 * static_cast<std::uint64_t>(options.seed) + (1u << 30), kHiddenAmplitude);
}

Tensor seeded_grad_output(const LayerOptions& options, std::int64_t tokens) {
  return seeded(options.type, tokens * options.hidden,
                4 * static_cast<std::uint64_t>(options.seed) + (1u << 30) + 1, kHiddenAmplitude);
}

}  // namespace evenkeel::cli
