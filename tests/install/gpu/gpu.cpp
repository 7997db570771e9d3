// Asks an installed evenkeel for a GPU. It finds one, or says why it found none.
#include <evenkeel/base/error.h>
#include <evenkeel/device/cuda/gpu.h>
#include <evenkeel/device/device.h>

#include <cstdio>

int main() {
  const int gpus = evenkeel::cuda::gpu_count();
  std::printf("%d GPUs %s\n", gpus, evenkeel::cuda::why_no_gpu().c_str());
  try {
    evenkeel::Device::cuda(0);
    return gpus > 0 ? 0 : 1;
  } catch (const evenkeel::Unsupported&) {
    return gpus == 0 ? 0 : 1;
  }
}
