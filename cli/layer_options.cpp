#include "cli/layer_options.h"

#include <string>

#include "cli/options.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::cli {

MoeShape LayerOptions::shape() const {
  return {.num_experts = static_cast<int>(experts),
          .top_k = static_cast<int>(top_k),
          .expert = {.hidden = hidden,
                     .intermediate = intermediate,
                     .activation = activation,
                     .biases = activation == Activation::clamped_swiglu,
                     .type = type == 0 ? DataType::f32 : DataType::bf16}};
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
  add_word(app, "--dtype", options.type, {"f32", "bf16"}, "f32 or bf16")->type_name("TYPE");
  add_whole(app, "--seed", options.seed, 0, std::int64_t{1} << 53, "Seed of weights, tokens and scenarios");
}

}  // namespace evenkeel::cli
