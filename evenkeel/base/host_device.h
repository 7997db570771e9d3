// Marks functions that are compiled for the host and, by nvcc, for the device as well.
#pragma once

#if defined(__CUDACC__)
#define EVENKEEL_HOST_DEVICE __host__ __device__
#else
#define EVENKEEL_HOST_DEVICE
#endif
