// Devices: where memory is and where work runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace evenkeel {

// Owns a range of a device's addresses. The host may be unable to read or write them.
class MemoryRange {
 public:
  virtual ~MemoryRange() = default;
  virtual std::byte* begin() const = 0;
  // Makes bytes [offset, offset + bytes) usable until the range is destroyed. Bytes already usable keep their
  // contents. Throws Unsupported, changing nothing, if the device has no more memory.
  virtual void commit(std::int64_t offset, std::int64_t bytes) = 0;
};

// Lends address ranges. Each device has one source.
class MemorySource {
 public:
  enum class Commit {
    now,    // the whole range is usable at once
    later,  // commit() makes bytes usable
  };
  virtual ~MemorySource() = default;
  // The largest range that can be reserved now.
  virtual std::int64_t available_bytes() const = 0;
  // Throws Unsupported if the device has too little memory.
  virtual std::unique_ptr<MemoryRange> reserve(std::int64_t bytes, Commit commit) const = 0;
};

class Device {
 public:
  static Device cpu();
  // An NVIDIA GPU by its CUDA index; defined in evenkeel::device_cuda. Throws Unsupported, with the reason,
  // if this build has no CUDA part or the GPU cannot be used.
  static Device cuda(int index = 0);
  // Any other memory. `memory` must outlive all arenas on it.
  explicit Device(const MemorySource& memory) : memory_(&memory) {}

  // The GPU's number; -1 for other devices.
  int gpu() const { return gpu_; }
  const MemorySource& memory() const { return *memory_; }

 private:
  Device(const MemorySource& memory, int gpu) : memory_(&memory), gpu_(gpu) {}

  const MemorySource* memory_;
  int gpu_ = -1;
};

}  // namespace evenkeel
