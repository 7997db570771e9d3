#include "tests/layer/heap_use.h"

#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

namespace evenkeel::testing {

namespace {

constinit thread_local HeapUse use;

void* given(void* bytes) {
  if (use.counting && bytes != nullptr) {
    ++use.allocations;
    use.live_bytes += static_cast<std::int64_t>(malloc_usable_size(bytes));
    use.peak_bytes = std::max(use.peak_bytes, use.live_bytes);
  }
  return bytes;
}

void given_back(void* bytes) {
  if (use.counting && bytes != nullptr)
    use.live_bytes -= static_cast<std::int64_t>(malloc_usable_size(bytes));
}

}  // namespace

HeapUse& heap_use() {
  return use;
}

}  // namespace evenkeel::testing

using evenkeel::testing::given;
using evenkeel::testing::given_back;

// glibc's own allocation functions, under the names that remain available when malloc and the others are
// replaced.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* bytes);

void* malloc(std::size_t bytes) noexcept {
  return given(__libc_malloc(bytes));
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  return given(__libc_calloc(count, bytes));
}
void* realloc(void* old, std::size_t bytes) noexcept {
  given_back(old);
  return given(__libc_realloc(old, bytes));
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  return given(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return given(__libc_memalign(alignment, bytes));
}
int posix_memalign(void** to, std::size_t alignment, std::size_t bytes) noexcept {
  *to = given(__libc_memalign(alignment, bytes));
  return *to == nullptr ? ENOMEM : 0;
}
void free(void* bytes) noexcept {
  given_back(bytes);
  __libc_free(bytes);
}
}
