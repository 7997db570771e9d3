// libFuzzer's way into what is parsed of a checkpoint.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  evenkeel::fuzz::exercise_checkpoint(std::as_bytes(std::span(data, size)));
  return 0;
}
