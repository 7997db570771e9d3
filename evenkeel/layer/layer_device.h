// Where a layer's steps run, if not on the CPU.
#pragma once

#include <cstdint>
#include <memory>

namespace evenkeel {

namespace internal {
class LayerBackend;
struct LayerParts;
}  // namespace internal

// layer/cuda/on_gpu.h has one for NVIDIA GPUs.
class LayerDevice {
 public:
  virtual ~LayerDevice() = default;
  // Of the kind of device and its options, which must be the same on all ranks.
  virtual std::uint64_t digest() const = 0;
  // Collective.
  virtual std::unique_ptr<internal::LayerBackend> make(const internal::LayerParts& layer) const = 0;
};

}  // namespace evenkeel
