// libFuzzer's way into one reader: CMakeLists.txt compiles this once for each, EXERCISE_READER its function
// in exercise.h.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  evenkeel::fuzz::EXERCISE_READER(std::as_bytes(std::span(data, size)));
  return 0;
}
