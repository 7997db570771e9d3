// Which NVIDIA GPUs this process can use.
#pragma once

#include <string>

namespace evenkeel::cuda {

// Number of usable GPUs (compute capability 8.0 or higher). 0 without a driver or such a GPU.
int gpu_count();

// Why gpu_count() is 0; empty if it is not 0.
std::string why_no_gpu();

// Throws Unsupported, with the reason, if GPU `index` cannot be used.
void require_gpu(int index);

// Lets kernels on GPU `reader` access the memory of GPU `owner`. Returns false if the two GPUs do not support
// this. Copies between GPUs need no such permission.
bool open_memory(int owner, int reader);

// Waits for all work on all streams of GPU `index`. Ignores errors; later calls to the GPU throw them.
void await_gpu(int index) noexcept;

}  // namespace evenkeel::cuda
