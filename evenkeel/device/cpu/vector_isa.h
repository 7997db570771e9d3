// The vector instruction sets that kernels are compiled for, and the best one that this CPU has.
//
// A kernel file NAME.inl is compiled once for each instruction set (evenkeel_vector_sources in CMake), inside
//   namespace EVENKEEL_VECTOR_ISA { ... }
// and defines one table of functions there. best_isa() tells which table to use.
#pragma once

namespace evenkeel::vector {

enum class Isa { baseline, avx2, avx512 };

inline Isa best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return Isa::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
  return Isa::baseline;
}

// Returns the table for this CPU.
template <class Table>
const Table& best_of(const Table& baseline, const Table& avx2, const Table& avx512) {
  const Isa isa = best_isa();
  return isa == Isa::avx512 ? avx512 : isa == Isa::avx2 ? avx2 : baseline;
}

}  // namespace evenkeel::vector
