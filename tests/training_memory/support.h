// Models and setups of the memory tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "evenkeel/io/model_config.h"
#include "evenkeel/training_memory/memory_model.h"
#include "tests/io/support.h"

namespace evenkeel {

inline ModelDescription model_named(const std::string& name) {
  return read_model_description(repository_file("tests/data/configs/" + name + ".json"));
}

// Sets the least data parallelism that the experts need.
inline Parallelism with_least_data(Parallelism parallel) {
  parallel.data = parallel.least_data();
  return parallel;
}

// The paper's setup: t = 1, p = 4, e = 32, c = 1, v = 1, b = 1, full recomputation, two bytes per number. d
// is 32, not the paper's 1, which would leave one device per stage for 32 expert parts. No compared value
// depends on d.
inline MemorySetup memfine_setup() {
  MemorySetup setup;
  setup.parallel.pipeline = 4;
  setup.parallel.expert = 32;
  setup.parallel.data = 32;
  setup.sequence = 4096;
  return setup;
}

inline const nlohmann::json& memfine_numbers() {
  static const auto numbers = nlohmann::json::parse(read_text(repository_file("tests/data/memfine.json")));
  return numbers;
}

inline std::int64_t gigabytes(double number) {
  return static_cast<std::int64_t>(number * 1e9 + 0.5);
}

}  // namespace evenkeel
