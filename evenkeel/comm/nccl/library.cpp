#include "evenkeel/comm/nccl/internal/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

void* open_library() {
  const char* const wanted = std::getenv("EVENKEEL_NCCL_LIBRARY");
  if (wanted != nullptr) {
    if (void* library = dlopen(wanted, RTLD_NOW | RTLD_LOCAL)) return library;
    throw Unsupported(fmt::format("EVENKEEL_NCCL_LIBRARY: {}", dlerror()));
  }
  for (const char* name : {"libnccl.so.2", EVENKEEL_NCCL_BUILT_WITH})
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  throw Unsupported(
      "NCCL (libnccl.so.2) was not found; `pip install nvidia-nccl-cu13` installs it, "
      "and EVENKEEL_NCCL_LIBRARY can name its file");
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw Unsupported(fmt::format("this NCCL is too old: it has no {}", name));
}

Library load() {
  void* const nccl = open_library();
  Library library{};
#define EVENKEEL_FIND(function, name) find(nccl, #function, library.name);
  EVENKEEL_FOR_EACH_NCCL_FUNCTION(EVENKEEL_FIND)
#undef EVENKEEL_FIND
  return library;
}

}  // namespace

const Library& Library::get() {
  static const Library library = load();
  return library;
}

}  // namespace evenkeel::internal
