// A GPU's memory. With a budget it is one cudaMalloc. Without one, addresses are reserved and memory is
// mapped when first needed.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <vector>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/device/cuda/gpu.h"
#include "evenkeel/device/cuda/runtime.cuh"
#include "evenkeel/device/device.h"
#include "evenkeel/device/pages.h"

namespace evenkeel {

namespace {

struct MemoryInfo {
  std::size_t free = 0;
  std::size_t total = 0;
};

MemoryInfo memory_of(int gpu) {
  MemoryInfo info;
  EVENKEEL_CUDA_CALL(cudaSetDevice, gpu);
  EVENKEEL_CUDA_CALL(cudaMemGetInfo, &info.free, &info.total);
  return info;
}

Unsupported too_much(int gpu, std::int64_t bytes) {
  const MemoryInfo info = memory_of(gpu);
  return Unsupported(fmt::format("GPU {} has {} free of {}; an arena needs {} more", gpu,
                                 format_bytes(static_cast<std::int64_t>(info.free)),
                                 format_bytes(static_cast<std::int64_t>(info.total)), format_bytes(bytes)));
}

class WholeRange final : public MemoryRange {
 public:
  WholeRange(int gpu, std::int64_t bytes) : gpu_(gpu) {
    EVENKEEL_CUDA_CALL(cudaSetDevice, gpu);
    const cudaError_t result =
        cudaMalloc(&begin_, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
    if (result == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw too_much(gpu, bytes);
    }
    cuda::check(result, "cudaMalloc");
  }
  WholeRange(const WholeRange&) = delete;
  WholeRange& operator=(const WholeRange&) = delete;
  ~WholeRange() override {
    static_cast<void>(cudaSetDevice(gpu_));
    static_cast<void>(cudaFree(begin_));
  }
  std::byte* begin() const override { return static_cast<std::byte*>(begin_); }
  void commit(std::int64_t, std::int64_t) override {}

 private:
  int gpu_;
  void* begin_ = nullptr;
};

// The driver functions that reserve addresses and map memory separately.
struct Driver {
  PFN_cuMemGetAllocationGranularity_v10020 granularity =
      cuda::driver_function<PFN_cuMemGetAllocationGranularity_v10020>("cuMemGetAllocationGranularity", 10020);
  PFN_cuMemAddressReserve_v10020 reserve =
      cuda::driver_function<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve", 10020);
  PFN_cuMemAddressFree_v10020 free =
      cuda::driver_function<PFN_cuMemAddressFree_v10020>("cuMemAddressFree", 10020);
  PFN_cuMemCreate_v10020 create = cuda::driver_function<PFN_cuMemCreate_v10020>("cuMemCreate", 10020);
  PFN_cuMemRelease_v10020 release = cuda::driver_function<PFN_cuMemRelease_v10020>("cuMemRelease", 10020);
  PFN_cuMemMap_v10020 map = cuda::driver_function<PFN_cuMemMap_v10020>("cuMemMap", 10020);
  PFN_cuMemUnmap_v10020 unmap = cuda::driver_function<PFN_cuMemUnmap_v10020>("cuMemUnmap", 10020);
  PFN_cuMemSetAccess_v10020 set_access =
      cuda::driver_function<PFN_cuMemSetAccess_v10020>("cuMemSetAccess", 10020);

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }
};

void check(int gpu, CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw DeviceError(fmt::format("GPU {}", gpu), call, fmt::format("error {}", static_cast<int>(result)));
}

CUmemAllocationProp properties_of(int gpu) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = gpu;
  return properties;
}

// The GPU itself and the GPUs that can access its memory.
std::vector<CUmemAccessDesc> readers_of(int gpu) {
  std::vector<CUmemAccessDesc> readers;
  for (int other = 0; other < cuda::gpu_count(); ++other) {
    int can = other == gpu ? 1 : 0;
    if (other != gpu) EVENKEEL_CUDA_CALL(cudaDeviceCanAccessPeer, &can, other, gpu);
    if (can == 0) continue;
    CUmemAccessDesc reader = {};
    reader.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    reader.location.id = other;
    reader.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    readers.push_back(reader);
  }
  return readers;
}

class PagedRange final : public MemoryRange {
 public:
  PagedRange(int gpu, std::int64_t bytes) : gpu_(gpu), driver_(Driver::get()), readers_(readers_of(gpu)) {
    EVENKEEL_CUDA_CALL(cudaSetDevice, gpu);  // starts the driver
    const CUmemAllocationProp properties = properties_of(gpu);
    std::size_t granularity = 0;
    check(gpu, driver_.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "cuMemGetAllocationGranularity");
    pages_ = Pages(bytes, Pages::usual_bytes(static_cast<std::int64_t>(granularity)));
    handles_.resize(static_cast<std::size_t>(pages_.count()));
    check(gpu, driver_.reserve(&begin_, static_cast<std::size_t>(pages_.bytes()), 0, 0, 0),
          "cuMemAddressReserve");
  }
  PagedRange(const PagedRange&) = delete;
  PagedRange& operator=(const PagedRange&) = delete;
  ~PagedRange() override {
    static_cast<void>(cudaSetDevice(gpu_));
    static_cast<void>(cudaDeviceSynchronize());  // like cudaFree: no work may still use this memory
    for (std::int64_t page = 0; page < pages_.count(); ++page)
      if (pages_.is_committed(page)) drop(page);
    static_cast<void>(driver_.free(begin_, static_cast<std::size_t>(pages_.bytes())));
  }

  std::byte* begin() const override { return std::bit_cast<std::byte*>(begin_); }

  void commit(std::int64_t offset, std::int64_t bytes) override {
    EVENKEEL_CUDA_CALL(cudaSetDevice, gpu_);
    pages_.commit(
        offset, bytes, [this](std::int64_t page) { add(page); }, [this](std::int64_t page) { drop(page); });
  }

 private:
  CUdeviceptr address(std::int64_t page) const {
    return begin_ + static_cast<CUdeviceptr>(page * pages_.page_bytes());
  }
  std::size_t page_size() const { return static_cast<std::size_t>(pages_.page_bytes()); }

  // Adds the whole page, or throws and changes nothing.
  void add(std::int64_t page) {
    const CUmemAllocationProp properties = properties_of(gpu_);
    CUmemGenericAllocationHandle& handle = handles_[static_cast<std::size_t>(page)];
    const CUresult created = driver_.create(&handle, page_size(), &properties, 0);
    if (created == CUDA_ERROR_OUT_OF_MEMORY) throw too_much(gpu_, pages_.page_bytes());
    check(gpu_, created, "cuMemCreate");
    const CUresult mapped = driver_.map(address(page), page_size(), 0, handle, 0);
    if (mapped != CUDA_SUCCESS) static_cast<void>(driver_.release(handle));
    check(gpu_, mapped, "cuMemMap");
    const CUresult opened = driver_.set_access(address(page), page_size(), readers_.data(), readers_.size());
    if (opened != CUDA_SUCCESS) drop(page);
    check(gpu_, opened, "cuMemSetAccess");
  }

  void drop(std::int64_t page) {
    static_cast<void>(driver_.unmap(address(page), page_size()));
    static_cast<void>(driver_.release(handles_[static_cast<std::size_t>(page)]));
  }

  int gpu_;
  const Driver& driver_;
  std::vector<CUmemAccessDesc> readers_;
  Pages pages_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  CUdeviceptr begin_ = 0;
};

class GpuMemory final : public MemorySource {
 public:
  explicit GpuMemory(int gpu) : gpu_(gpu) {}
  std::int64_t available_bytes() const override { return static_cast<std::int64_t>(memory_of(gpu_).free); }
  std::unique_ptr<MemoryRange> reserve(std::int64_t bytes, Commit commit) const override {
    if (commit == Commit::now) return std::make_unique<WholeRange>(gpu_, bytes);
    return std::make_unique<PagedRange>(gpu_, bytes);
  }

 private:
  int gpu_;
};

}  // namespace

Device Device::cuda(int index) {
  cuda::require_gpu(index);
  static const std::vector<GpuMemory> memories = [] {
    std::vector<GpuMemory> each;
    for (int gpu = 0; gpu < cuda::gpu_count(); ++gpu) each.emplace_back(gpu);
    return each;
  }();
  return Device(memories[static_cast<std::size_t>(index)], index);
}

}  // namespace evenkeel
