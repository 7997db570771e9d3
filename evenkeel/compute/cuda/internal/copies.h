// Wrappers of the hardware's asynchronous copies into shared memory and of the barriers that signal them.
#pragma once

#include <cstdint>

#include "evenkeel/compute/cuda/internal/boxes.h"

#if defined(__CUDACC__)

namespace evenkeel::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes, or writes 16 zeros if `zeros`; compute capability 8.0.
__device__ __forceinline__ void copy_async(std::uint32_t to, const void* from, bool zeros) {
  asm volatile(
      "{\n.reg .pred zeros;\nsetp.ne.b32 zeros, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, zeros;\n}\n" ::"r"(to),
      "l"(from), "r"(static_cast<int>(zeros))
      : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// The `copy` argument of copy_line() for rows that consist of whole lines.
struct CopyLines {
  std::uint32_t base;
  __device__ __forceinline__ void operator()(std::uint32_t to, const bf16* from, int numbers) const {
    copy_async(base + to, from, numbers == 0);
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Makes writes visible to wgmma: all that this thread has waited for, including other threads' cp.async.
__device__ __forceinline__ void show_to_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A barrier in shared memory (mbarrier). Phases count from zero. wait(p) returns when a phase of parity p is
// over; on a new barrier wait(1) returns at once.
struct Barrier {
  std::uint64_t state;

  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals)
                 : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  // Arrives, and keeps the phase open until `bytes` of bulk copies have arrived.
  __device__ __forceinline__ void arrive_expecting(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                 "r"(bytes)
                 : "memory");
  }
  __device__ __forceinline__ void wait(std::uint32_t parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}\n" ::"r"(shared_address(this)),
        "r"(parity)
        : "memory");
  }
};

// Arrives at the barrier once all of this thread's cp.async so far are done. init() must have counted this
// arrival.
__device__ __forceinline__ void copy_async_arrive(Barrier& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}

__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Acquires a tensor map in device memory that an earlier kernel wrote.
__device__ __forceinline__ void acquire_map(const void* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// Prefetches a tensor map that is a kernel argument.
__device__ __forceinline__ void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Copies the box at (row, column) of a matrix; reads zeros beyond the matrix.
__device__ __forceinline__ void copy_box(std::uint32_t to, const void* map, int row, int column,
                                         Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(shared_address(&barrier)), "r"(column), "r"(row)
      : "memory");
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace evenkeel::cuda

#endif  // __CUDACC__
