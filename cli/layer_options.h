// The options that say what a layer is, and what it computes with.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "cli/experiment.h"
#include "cli/tensors.h"

namespace evenkeel::cli {

struct LayerOptions {
  std::int64_t experts = 128;
  std::int64_t top_k = 4;
  std::int64_t hidden = 768;
  std::int64_t intermediate = 768;
  Activation activation = Activation::swiglu;
  DataType type = DataType::f32;
  std::int64_t seed = 1;

  // clamped-swiglu has biases, as in gpt-oss.
  MoeShape shape() const;
};

// --experts --top-k --hidden --intermediate --activation --dtype --seed
void add_layer_options(CLI::App& app, LayerOptions& options);

// Seeded hidden rows, and gradients of the output, for so many tokens.
Tensor seeded_hidden(const LayerOptions& options, std::int64_t tokens);
Tensor seeded_grad_output(const LayerOptions& options, std::int64_t tokens);

}  // namespace evenkeel::cli
