// libFuzzer's way into topologies.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  evenkeel::fuzz::exercise_topology(std::as_bytes(std::span(data, size)));
  return 0;
}
