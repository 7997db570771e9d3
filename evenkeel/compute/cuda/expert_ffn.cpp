#include "evenkeel/compute/cuda/expert_ffn.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"
#include "evenkeel/compute/cuda/internal/launch.h"
#include "evenkeel/device/cuda/runtime.cuh"

namespace evenkeel {

namespace {

using namespace cuda;

// Runs the passes of passes.h on a GPU's stream. Uses the Hopper kernels if it has tensor maps.
class Machine {
 public:
  Machine(const Chip& chip, cudaStream_t stream, const TensorMap* maps, int num_groups, bool in_lines)
      : chip_(chip), stream_(stream), maps_(maps), num_groups_(num_groups), in_lines_(in_lines) {}

  void make_schedule(const TileSchedule& schedule) { launch_schedule(schedule, stream_); }
  template <class Product>
  void run(const Product& product, const TileSchedule& schedule, int counter) {
    if (maps_ == nullptr)
      return generic::launch(generic::Call<Product>{product, schedule, counter, in_lines_}, chip_, stream_);
    hopper::Call<Product> call{product, schedule, counter, nullptr, {}};
    if constexpr (Product::kByRows)
      call.maps = maps_ + (product.matrix == WeightMatrix::down ? num_groups_ : 0);
    if constexpr (!Product::kByRows || Product::kOrderA == Order::by_position) {
      const auto rows = product.rows_by_position();
      call.rows = make_matrix_map(rows.data, product.max_positions, rows.width);
    }
    hopper::launch(call, chip_, stream_);
  }
  template <class Sum>
  void run(const Sum& sum) {
    launch(sum, stream_);
  }

 private:
  const Chip& chip_;
  cudaStream_t stream_;
  const TensorMap* maps_;
  int num_groups_;
  bool in_lines_;
};

Chip current_chip() {
  int device = 0, major = 0, minor = 0;
  Chip chip;
  EVENKEEL_CUDA_CALL(cudaGetDevice, &device);
  EVENKEEL_CUDA_CALL(cudaDeviceGetAttribute, &major, cudaDevAttrComputeCapabilityMajor, device);
  EVENKEEL_CUDA_CALL(cudaDeviceGetAttribute, &minor, cudaDevAttrComputeCapabilityMinor, device);
  EVENKEEL_CUDA_CALL(cudaDeviceGetAttribute, &chip.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  chip.capability = 10 * major + minor;
  return chip;
}

void require_shape(const ExpertShape& shape) {
  require_sizes(shape);
  if (shape.type != DataType::bf16)
    throw Unsupported(
        fmt::format("experts on a GPU take rows and weights of bf16, not {}", name_of(shape.type)));
}

// Bulk copies need rows that begin at multiples of 16 bytes.
bool in_whole_lines(const ExpertShape& shape) {
  return shape.hidden % kLineNumbers == 0 && shape.intermediate % kLineNumbers == 0;
}

CudaKernels choose(const ExpertShape& shape, CudaKernels asked, const Chip& chip) {
  constexpr int kHopper = 90, kOldest = 80;
  if (chip.capability < kOldest)
    throw Unsupported(fmt::format("this GPU has compute capability {}.{}; at least 8.0 is needed",
                                  chip.capability / 10, chip.capability % 10));
  const bool can = chip.capability == kHopper && in_whole_lines(shape);
  if (asked == CudaKernels::hopper && !can)
    throw Unsupported(fmt::format(
        "hopper kernels run on compute capability 9.0 with sizes that are multiples of {}, not on {}.{} with "
        "{} x {}",
        kLineNumbers, chip.capability / 10, chip.capability % 10, shape.hidden, shape.intermediate));
  if (asked != CudaKernels::automatic) return asked;
  return can ? CudaKernels::hopper : CudaKernels::generic;
}

class GpuExpertFfn final : public CudaExpertFfn {
 public:
  GpuExpertFfn(const ExpertShape& shape, const CudaExpertOptions& options)
      : shape_(shape),
        gradient_type_(options.gradient_type),
        chip_(current_chip()),
        kernels_(choose(shape, options.kernels, chip_)) {
    if (kernels_ == CudaKernels::hopper)
      hopper::prepare();
    else
      generic::prepare();
  }

  const ExpertShape& shape() const override { return shape_; }
  CudaKernels kernels() const override { return kernels_; }
  std::int64_t saved_bytes_per_position() const override {
    return shape_.gate_up_rows() * bytes_of(shape_.type);
  }

  std::int64_t forward_workspace_bytes(int num_groups, std::int64_t max_positions) const override {
    WorkspaceCarver carver(nullptr);
    ForwardPieces(carver, shape_, num_groups, max_positions);
    return carver.needed();
  }
  std::int64_t backward_workspace_bytes(int num_groups, std::int64_t max_positions,
                                        const DeviceBackward& call) const override {
    WorkspaceCarver carver(nullptr);
    BackwardPieces(carver, shape_, num_groups, max_positions, call, dot_columns());
    return carver.needed();
  }

  void forward(const DeviceGroups& groups, const void* input, void* output, std::byte* saved,
               std::span<std::byte> workspace, CudaStream& stream) const override {
    WorkspaceCarver carver(workspace.data());
    const ForwardPieces pieces(carver, shape_, groups.num_groups, groups.max_positions);
    require_space(carver, workspace);
    Machine machine = machine_for(groups, pieces.maps, stream);
    with_activation(shape_.activation, [&]<Activation kActivation>() {
      run_forward<kActivation>(machine, shape_, groups, input, output, saved, pieces);
    });
  }

  void backward(const DeviceGroups& groups, const DeviceBackward& call, std::span<std::byte> workspace,
                CudaStream& stream) const override {
    WorkspaceCarver carver(workspace.data());
    const BackwardPieces pieces(carver, shape_, groups.num_groups, groups.max_positions, call, dot_columns());
    require_space(carver, workspace);
    Machine machine = machine_for(groups, pieces.maps, stream);
    with_activation(shape_.activation, [&]<Activation kActivation>() {
      run_backward<kActivation>(machine, shape_, groups, call, pieces, gradient_type_);
    });
  }

 private:
  int dot_columns() const {
    return kernels_ == CudaKernels::hopper ? hopper::kDotColumns : generic::kDotColumns;
  }

  static void require_space(const WorkspaceCarver& carver, std::span<std::byte> workspace) {
    if (carver.needed() > static_cast<std::int64_t>(workspace.size()))
      throw InvalidArgument("workspace", fmt::format("{} bytes", workspace.size()),
                            fmt::format("at least {}", carver.needed()));
  }

  Machine machine_for(const DeviceGroups& groups, TensorMap* maps, CudaStream& stream) const {
    const cudaStream_t launches = native(stream);
    const bool with_maps = kernels_ == CudaKernels::hopper;
    // The device replaces this initial address before it is used. It is a device address only because the
    // driver might check it.
    if (with_maps)
      hopper::launch_maps(groups.num_groups, groups.weights,
                          make_matrix_map(maps, shape_.gate_up_rows(), shape_.hidden),
                          make_matrix_map(maps, shape_.hidden, shape_.intermediate), maps, launches);
    return {chip_, launches, with_maps ? maps : nullptr, groups.num_groups, in_whole_lines(shape_)};
  }

  ExpertShape shape_;
  DataType gradient_type_;
  Chip chip_;
  CudaKernels kernels_;
};

}  // namespace

std::shared_ptr<const CudaExpertFfn> make_cuda_expert_ffn(const ExpertShape& shape,
                                                          const CudaExpertOptions& options) {
  require_shape(shape);
  return std::make_shared<GpuExpertFfn>(shape, options);
}

}  // namespace evenkeel
