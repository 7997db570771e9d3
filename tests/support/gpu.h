// How a GPU test skips where there is no GPU: the first line of each is SKIP_WITHOUT_GPU();
#pragma once

#include <gtest/gtest.h>

#include "evenkeel/device/cuda/gpu.h"

#define SKIP_WITHOUT_GPU() \
  if (::evenkeel::cuda::gpu_count() == 0) GTEST_SKIP() << ::evenkeel::cuda::why_no_gpu()
