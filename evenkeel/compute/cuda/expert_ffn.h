// The experts' feed-forward network on NVIDIA GPUs: one call works through all groups of rows, native and
// foreign experts alike, with group sizes that only the device knows. What is computed is what
// compute/expert_ffn.h says.
//
// Method      Grouped products over tiles of rows, which a persistent grid draws from a schedule made on the
//             device. The first product's loads gather rows and its epilogue activates, so the intermediate
//             rows (h, and the saved pre-activations) are all that passes through memory between two
//             products.
// Kernels     hopper: wgmma and bulk tensor copies, compute capability 9.0, sizes that are multiples of 8.
//             generic: mma.sync, 8.0 and later, any size. Chosen once, at construction.
// Guarantee   No host synchronisation and no allocation: every call is a fixed list of launches and can be
//             captured in a graph. A row's results depend on neither its position nor the other rows. Sums
//             over rows (gradients) are made in the order of positions: the same input gives the same bits.
// Memory      Everything is handed in; addresses are the device's, 16-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel {

class CudaStream;

// One expert's gradients, of CudaExpertOptions::gradient_type; backward adds to them. Bias pointers are null
// without biases.
struct DeviceExpertGradients {
  void* gate_up = nullptr;
  void* down = nullptr;
  void* gate_up_bias = nullptr;
  void* down_bias = nullptr;
};

// Group g works on positions [begin[g], begin[g + 1]); groups may be empty. All pointers are to device
// memory, read when the launches run: what they point to may be written by earlier work of the stream.
struct DeviceGroups {
  int num_groups = 0;
  const std::int32_t* begin = nullptr;               // [num_groups + 1], not decreasing
  const ExpertWeights* weights = nullptr;            // [num_groups]
  const DeviceExpertGradients* gradients = nullptr;  // [num_groups], backward only
  const std::int32_t* input_row = nullptr;           // by position
  const std::int32_t* output_row = nullptr;          // by position
  std::int64_t max_positions = 0;                    // begin[num_groups] is at most this
};

enum class CudaKernels { automatic, hopper, generic };

struct CudaExpertOptions {
  DataType gradient_type = DataType::f32;  // of weight and bias gradients
  CudaKernels kernels = CudaKernels::automatic;
};

// Tensors that backward reads and writes, besides groups and workspace.
struct DeviceBackward {
  const void* input = nullptr;        // rows of D, as in forward
  const void* grad_output = nullptr;  // rows of D, read at input_row
  const float* weight = nullptr;      // by output_row
  const std::byte* saved = nullptr;   // what forward saved; null: computed again, to the same bits
  float* grad_weight = nullptr;       // by output_row; written

  // The gradient of the input: f32 rows of D by position, written; and, where `grad_input` is not null, added
  // to the rows that the positions read, in the order of positions. Without `grad_position` the rows by
  // position are kept in the workspace.
  float* grad_position = nullptr;  // [max_positions, D]
  float* grad_input = nullptr;     // [input_rows, D]
  std::int64_t input_rows = 0;
};

class CudaExpertFfn {
 public:
  virtual ~CudaExpertFfn() = default;
  virtual const ExpertShape& shape() const = 0;
  // hopper or generic.
  virtual CudaKernels kernels() const = 0;

  // Bytes of device memory that a call needs beside its arguments.
  virtual std::int64_t forward_workspace_bytes(int num_groups, std::int64_t max_positions) const = 0;
  // `backward` is read for which of its pointers are null, and for input_rows.
  virtual std::int64_t backward_workspace_bytes(int num_groups, std::int64_t max_positions,
                                                const DeviceBackward& backward) const = 0;
  // Bytes that forward keeps for backward, for each position: the pre-activations.
  virtual std::int64_t saved_bytes_per_position() const = 0;

  // output[output_row[i]] = expert(input[input_row[i]]). `saved` is null, or has space for max_positions.
  // Throws InvalidArgument for a workspace that is too small, Error for a launch that CUDA refuses.
  virtual void forward(const DeviceGroups& groups, const void* input, void* output, std::byte* saved,
                       std::span<std::byte> workspace, CudaStream& stream) const = 0;
  virtual void backward(const DeviceGroups& groups, const DeviceBackward& backward,
                        std::span<std::byte> workspace, CudaStream& stream) const = 0;
};

// For the calling thread's current device; immutable, for any number of threads and streams at once.
// Throws InvalidArgument for a shape without rows or columns, Unsupported for rows of f32, for hopper kernels
// asked for where they cannot run, and for devices before compute capability 8.0.
std::shared_ptr<const CudaExpertFfn> make_cuda_expert_ffn(const ExpertShape& shape,
                                                          const CudaExpertOptions& options = {});

}  // namespace evenkeel
