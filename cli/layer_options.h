// Options for the shape and data type of a layer.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "evenkeel/layer/moe_layer.h"

namespace evenkeel::cli {

struct LayerOptions {
  std::int64_t experts = 128;
  std::int64_t top_k = 4;
  std::int64_t hidden = 768;
  std::int64_t intermediate = 768;
  Activation activation = Activation::swiglu;
  std::size_t type = 0;  // f32, bf16
  std::int64_t seed = 1;

  // clamped-swiglu has biases, as in gpt-oss.
  MoeShape shape() const;
};

// --experts --top-k --hidden --intermediate --activation --dtype --seed
void add_layer_options(CLI::App& app, LayerOptions& options);

}  // namespace evenkeel::cli
