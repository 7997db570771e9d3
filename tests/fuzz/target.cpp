// The libFuzzer entry point of one reader. CMakeLists.txt compiles this file once for each target, with
// FUZZ_TARGET set to the target's name. The cost of an input is bounded by its length; exceeding the bound
// fails like a crash.
#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>

#include "tests/fuzz/exercise.h"

namespace {

std::int64_t held_bytes = 0;
std::int64_t most_held_bytes = 0;

void count_malloc(const volatile void*, std::size_t size) {
  held_bytes += static_cast<std::int64_t>(size);
  most_held_bytes = std::max(most_held_bytes, held_bytes);
}

void count_free(const volatile void* block) {
  if (block != nullptr) held_bytes -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(block));
}

void require_below(double used, double allowed, const char* unit, std::size_t bytes) {
  if (used <= allowed) return;
  std::fprintf(stderr, "an input of %zu bytes took %g %s; allowed: %g\n", bytes, used, unit, allowed);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  __sanitizer_install_malloc_and_free_hooks(count_malloc, count_free);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::int64_t held_before = held_bytes;
  most_held_bytes = held_bytes;
  const std::clock_t begin = std::clock();
  evenkeel::fuzz::exercise(FUZZ_TARGET, std::as_bytes(std::span(data, size)));
  // Sanitizers slow the code down about ten times.
  require_below(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC,
                10 * evenkeel::fuzz::allowed_seconds(size), "seconds", size);
  require_below(static_cast<double>(most_held_bytes - held_before),
                static_cast<double>(evenkeel::fuzz::allowed_bytes(size)), "bytes of memory", size);
  return 0;
}
