// Device::cuda() of a build without the parts for NVIDIA GPUs.
#include "evenkeel/base/error.h"
#include "evenkeel/device/device.h"

namespace evenkeel {

Device Device::cuda(int) {
  throw Unsupported(
      "this build of evenkeel has no CUDA part; build it where nvcc is, with -DEVENKEEL_CUDA=ON");
}

}  // namespace evenkeel
