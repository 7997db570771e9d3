// Marks a function to be compiled once for each kind of vector unit and chosen when the program starts.
// Sanitizers run before that choice can, so they get the plain version alone.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define EVENKEEL_VECTOR_CLONES \
  __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define EVENKEEL_VECTOR_CLONES
#endif

// Must end up inside its caller's clone.
#define EVENKEEL_INLINE inline __attribute__((always_inline))
