#include "evenkeel/layer/cuda/on_gpu.h"

#include "evenkeel/base/hash.h"
#include "evenkeel/layer/cuda/internal/gpu_layer.h"

namespace evenkeel {

namespace {

class OnGpu final : public LayerDevice {
 public:
  OnGpu(CudaStream& stream, const GpuOptions& options) : stream_(stream), options_(options) {}

  std::uint64_t digest() const override {
    return Hash().add(options_.borrow_slots).add(options_.rounds).value();
  }
  std::unique_ptr<internal::LayerBackend> make(const internal::LayerParts& layer) const override {
    return std::make_unique<internal::GpuLayer>(layer, stream_, options_);
  }

 private:
  CudaStream& stream_;
  GpuOptions options_;
};

}  // namespace

std::shared_ptr<const LayerDevice> on_gpu(CudaStream& stream, const GpuOptions& options) {
  return std::make_shared<OnGpu>(stream, options);
}

}  // namespace evenkeel
