// Prints one line of JSON for each config.json: its layers with experts, or the reason for refusing it.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "evenkeel/base/error.h"
#include "evenkeel/io/model_config.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    nlohmann::json line;
    try {
      const evenkeel::ModelLayers layers = evenkeel::read_model_layers(argv[i]);
      line = {{"num_hidden_layers", layers.num_hidden_layers},
              {"moe_layers", layers.moe_layers},
              {"mtp_layers", layers.mtp_layers},
              {"num_experts", layers.num_experts}};
    } catch (const evenkeel::Error& error) {
      line = {{"error", error.what()}};
    }
    std::puts(line.dump().c_str());
  }
}
