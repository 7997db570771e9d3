// Which NVIDIA GPUs this process can use.
#pragma once

#include <string>

namespace evenkeel::cuda {

// 0 where there is no driver, no GPU, or none that runs what was compiled (compute capability 8.0 and up).
int gpu_count();

// Why gpu_count() is 0: "no NVIDIA driver ...". Empty where it is not.
std::string why_no_gpu();

// Throws Unsupported, with the reason, where GPU `index` cannot be used.
void require_gpu(int index);

// Lets kernels of GPU `reader` use the memory of GPU `owner` from now on; false where these two GPUs cannot.
// Copies between GPUs need no such permission.
bool open_memory(int owner, int reader);

// Waits for all work that any stream of GPU `index` has been given; what failed there is thrown elsewhere.
void await_gpu(int index) noexcept;

}  // namespace evenkeel::cuda
