// Where memory and work live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace evenkeel {

// A range of a device's addresses, given back as this ends. The addresses need not mean anything to the host.
class MemoryRange {
 public:
  virtual ~MemoryRange() = default;
  virtual std::byte* begin() const = 0;
  // Makes bytes [offset, offset + bytes) usable, as they stay; those that are already stay as they are.
  // Throws Unsupported where the device has no more, and everything is as it was.
  virtual void commit(std::int64_t offset, std::int64_t bytes) = 0;
};

// The source that lends ranges of addresses: one for each device.
class MemorySource {
 public:
  enum class Commit {
    now,    // the whole range is usable at once
    later,  // by commit()
  };
  virtual ~MemorySource() = default;
  // The most that one range can have at present.
  virtual std::int64_t available_bytes() const = 0;
  // Throws Unsupported where there is not so much.
  virtual std::unique_ptr<MemoryRange> reserve(std::int64_t bytes, Commit commit) const = 0;
};

class Device {
 public:
  static Device cpu();
  // An NVIDIA GPU, by the number that CUDA gives it; a function of evenkeel::device_cuda. Throws Unsupported,
  // with the reason, where this build has no CUDA part, or no such GPU can be used.
  static Device cuda(int index = 0);
  // Any other memory, which must outlive all arenas on it.
  explicit Device(const MemorySource& memory) : memory_(&memory) {}

  // The GPU's number; -1 for everything else.
  int gpu() const { return gpu_; }
  const MemorySource& memory() const { return *memory_; }

 private:
  Device(const MemorySource& memory, int gpu) : memory_(&memory), gpu_(gpu) {}

  const MemorySource* memory_;
  int gpu_ = -1;
};

}  // namespace evenkeel
