// Skips a GPU test without a GPU: start every GPU test with SKIP_WITHOUT_GPU();
#pragma once

#include <gtest/gtest.h>

#include "evenkeel/device/cuda/gpu.h"

#define SKIP_WITHOUT_GPU() \
  if (::evenkeel::cuda::gpu_count() == 0) GTEST_SKIP() << ::evenkeel::cuda::why_no_gpu()
