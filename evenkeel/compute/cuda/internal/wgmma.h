// The warpgroup matrix product (wgmma) of compute capability 9.0: 64 x 256 x 16 or 64 x 128 x 16, with both
// operands in shared memory.
#pragma once

#include <cstdint>

#include "evenkeel/compute/cuda/internal/operand.h"

namespace evenkeel::cuda {

#if defined(__CUDACC__)

// The registers of the sums: their operand numbers in the instruction text, then 8 or 64 operands.
#define EVENKEEL_REGISTERS_0_63                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define EVENKEEL_REGISTERS_64_127                                                                \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define EVENKEEL_SUMS_8(d, i)                                                                             \
  "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]), \
      "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define EVENKEEL_SUMS_64(d, i)                                                                  \
  EVENKEEL_SUMS_8(d, i), EVENKEEL_SUMS_8(d, (i) + 8), EVENKEEL_SUMS_8(d, (i) + 16),             \
      EVENKEEL_SUMS_8(d, (i) + 24), EVENKEEL_SUMS_8(d, (i) + 32), EVENKEEL_SUMS_8(d, (i) + 40), \
      EVENKEEL_SUMS_8(d, (i) + 48), EVENKEEL_SUMS_8(d, (i) + 56)

// d += a . b, or d = a . b if `add` is zero. d has the layout of quad.h: kColumns / 8 blocks of 8 columns;
// the rest of d is unchanged.
template <Major kMajorA, Major kMajorB, int kColumns>
__device__ __forceinline__ void wgmma(float (&d)[128], std::uint64_t a, std::uint64_t b, int add) {
  static_assert(kColumns == 256 || kColumns == 128);
  constexpr int kOuterA = kMajorA == Major::outer ? 1 : 0, kOuterB = kMajorB == Major::outer ? 1 : 0;
  if constexpr (kColumns == 256) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" EVENKEEL_REGISTERS_0_63
        ", " EVENKEEL_REGISTERS_64_127 "}, %128, %129, p, 1, 1, %131, %132;\n}\n"
        : EVENKEEL_SUMS_64(d, 0), EVENKEEL_SUMS_64(d, 64)
        : "l"(a), "l"(b), "r"(add), "n"(kOuterA), "n"(kOuterB));
  } else {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" EVENKEEL_REGISTERS_0_63
        "}, %64, %65, p, 1, 1, %67, %68;\n}\n"
        : EVENKEEL_SUMS_64(d, 0)
        : "l"(a), "l"(b), "r"(add), "n"(kOuterA), "n"(kOuterB));
  }
}

#undef EVENKEEL_SUMS_64
#undef EVENKEEL_SUMS_8
#undef EVENKEEL_REGISTERS_64_127
#undef EVENKEEL_REGISTERS_0_63

__device__ __forceinline__ void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of the sums before the preceding wait.
__device__ __forceinline__ void keep_in_place(float (&d)[128]) {
  EVENKEEL_UNROLL
  for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#endif  // __CUDACC__

}  // namespace evenkeel::cuda
