// Device::cuda() of a build without CUDA.
#include "evenkeel/base/error.h"
#include "evenkeel/device/device.h"

namespace evenkeel {

Device Device::cuda(int) {
  throw Unsupported(
      "this build of evenkeel has no CUDA part; rebuild with -DEVENKEEL_CUDA=ON on a machine with nvcc");
}

}  // namespace evenkeel
