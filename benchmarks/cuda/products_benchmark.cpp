// The experts' products on a GPU in TFLOP/s: forward and backward over groups that differ in number, size and
// skew, beside a loop of cuBLAS products over the same groups and one dense product of 8192 cubed.
//
// usage: products_cuda_benchmark CASES.json OUT.json
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "benchmarks/cuda/cublas.h"
#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/device/cuda/gpu.h"
#include "evenkeel/device/cuda/stream.h"
#include "tests/support/device_memory.h"

namespace evenkeel::benchmark {
namespace {

using Json = nlohmann::ordered_json;
using testing::DeviceMemory;

constexpr int kWarmups = 3, kRepeats = 20;

struct Case {
  std::string name, skew;
  ExpertShape shape;
  int groups = 0;
  std::int64_t positions = 0;

  explicit Case(const Json& json)
      : name(json.at("name")),
        skew(json.at("skew")),
        shape{json.at("hidden"), json.at("intermediate"),
              parse_activation(json.value("activation", std::string("swiglu"))), json.value("biases", false),
              DataType::bf16},
        groups(json.at("groups")),
        positions(json.at("positions")) {}

  std::vector<std::int32_t> begin() const {
    std::vector<double> shares(static_cast<std::size_t>(groups), 1.0);
    if (skew == "hot95" && groups > 1) {
      std::ranges::fill(shares, 0.05 / (groups - 1));
      shares[0] = 0.95;
    } else if (skew == "zipf") {
      for (std::size_t i = 0; i < shares.size(); ++i) shares[i] = 1.0 / static_cast<double>(i + 1);
    }
    const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<std::int32_t> result{0};
    double running = 0;
    for (double share : shares) {
      running += share / all;
      result.push_back(static_cast<std::int32_t>(std::lround(static_cast<double>(positions) * running)));
    }
    result.back() = static_cast<std::int32_t>(positions);
    return result;
  }
  // FLOP of a forward pass; a backward pass has twice as many.
  double flop() const {
    return 6.0 * static_cast<double>(positions) * static_cast<double>(shape.hidden) *
           static_cast<double>(shape.intermediate);
  }
};

// All inputs are random numbers, since products of zeros run faster.
DeviceMemory<bf16> random_numbers(std::int64_t count, float scale) {
  constexpr std::size_t kPattern = 1 << 20;
  static const std::vector<bf16> pattern = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<bf16> numbers(kPattern);
    for (bf16& number : numbers) number = bf16(normal(random));
    return numbers;
  }();
  std::vector<bf16> scaled(kPattern);
  std::ranges::transform(pattern, scaled.begin(),
                         [&](bf16 x) { return bf16(scale * static_cast<float>(x)); });
  DeviceMemory<bf16> memory(static_cast<std::size_t>(count));
  for (std::size_t at = 0; at < memory.size(); at += kPattern)
    EVENKEEL_CUDA_CALL(cudaMemcpy, memory.data() + at, scaled.data(),
                       std::min(kPattern, memory.size() - at) * sizeof(bf16), cudaMemcpyDefault);
  return memory;
}

Json time(CudaStream& stream, double flop, const std::function<void()>& run) {
  cudaEvent_t begin, end;
  EVENKEEL_CUDA_CALL(cudaEventCreate, &begin);
  EVENKEEL_CUDA_CALL(cudaEventCreate, &end);
  for (int i = 0; i < kWarmups; ++i) run();
  std::vector<float> times;
  for (int i = 0; i < kRepeats; ++i) {
    const cudaStream_t native = cuda::native(stream);
    EVENKEEL_CUDA_CALL(cudaEventRecord, begin, native);
    run();
    EVENKEEL_CUDA_CALL(cudaEventRecord, end, native);
    EVENKEEL_CUDA_CALL(cudaEventSynchronize, end);
    times.push_back(0);
    EVENKEEL_CUDA_CALL(cudaEventElapsedTime, &times.back(), begin, end);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::ranges::sort(times);
  const double median = static_cast<double>(times[times.size() / 2]);
  return {{"tflops", flop / median / 1e9},
          {"milliseconds", median},
          {"least_milliseconds", times.front()},
          {"most_milliseconds", times.back()}};
}

// The memory of one case, and its passes.
class Experts {
 public:
  Experts(const Case& c, CudaKernels kernels)
      : case_(c),
        ffn_(make_cuda_expert_ffn(c.shape, {.kernels = kernels})),
        begin_(std::span<const std::int32_t>(c.begin())),
        gate_up_(random_numbers(c.groups * c.shape.gate_up_rows() * c.shape.hidden,
                                1.0f / std::sqrt(static_cast<float>(c.shape.hidden)))),
        down_(random_numbers(c.groups * c.shape.hidden * c.shape.intermediate,
                             1.0f / std::sqrt(static_cast<float>(c.shape.intermediate)))),
        biases_(random_numbers(c.groups * biases_of(c.shape), 1)),
        input_(random_numbers(c.positions * c.shape.hidden, 1)),
        grad_output_(random_numbers(c.positions * c.shape.hidden, 1)),
        output_(static_cast<std::size_t>(c.positions * c.shape.hidden)),
        saved_(static_cast<std::size_t>(c.positions * ffn_->saved_bytes_per_position())),
        gradients_memory_(static_cast<std::size_t>(c.groups * c.shape.elements())),
        grad_weight_(static_cast<std::size_t>(c.positions)),
        grad_position_(static_cast<std::size_t>(c.positions * c.shape.hidden)) {
    gradients_memory_.clear();
    std::vector<float> weight(static_cast<std::size_t>(c.positions));
    std::mt19937 random(3);
    std::ranges::generate(weight, [&] { return std::uniform_real_distribution<float>(0.1f, 1)(random); });
    weight_ = DeviceMemory<float>(std::span<const float>(weight));
    std::vector<ExpertWeights> weights;
    std::vector<DeviceExpertGradients> gradients;
    for (std::int64_t g = 0; g < c.groups; ++g) {
      float* const block = gradients_memory_.data() + g * c.shape.elements();
      float* const bias_block = block + c.shape.elements() - biases_of(c.shape);
      const bf16* const biases = biases_.data() + g * biases_of(c.shape);
      const std::int64_t rows = c.shape.gate_up_rows();
      weights.push_back({gate_up_.data() + g * rows * c.shape.hidden,
                         down_.data() + g * c.shape.hidden * c.shape.intermediate,
                         c.shape.biases ? biases : nullptr, c.shape.biases ? biases + rows : nullptr});
      gradients.push_back({block, block + rows * c.shape.hidden, c.shape.biases ? bias_block : nullptr,
                           c.shape.biases ? bias_block + rows : nullptr});
    }
    weights_ = DeviceMemory<ExpertWeights>(std::span<const ExpertWeights>(weights));
    gradients_ = DeviceMemory<DeviceExpertGradients>(std::span<const DeviceExpertGradients>(gradients));
    std::vector<std::int32_t> rows(static_cast<std::size_t>(c.positions));
    std::iota(rows.begin(), rows.end(), 0);
    in_order_ = DeviceMemory<std::int32_t>(std::span<const std::int32_t>(rows));
    std::ranges::shuffle(rows, std::mt19937(2));
    anywhere_ = DeviceMemory<std::int32_t>(std::span<const std::int32_t>(rows));
    groups_ = {.num_groups = c.groups,
               .begin = begin_.data(),
               .weights = weights_.data(),
               .gradients = gradients_.data(),
               .input_row = anywhere_.data(),
               .output_row = in_order_.data(),
               .max_positions = c.positions};
    backward_ = {.input = input_.data(),
                 .grad_output = grad_output_.data(),
                 .weight = weight_.data(),
                 .saved = saved_.data(),
                 .grad_weight = grad_weight_.data(),
                 .grad_position = grad_position_.data()};
    workspace_ = DeviceMemory<std::byte>(
        static_cast<std::size_t>(std::max(ffn_->forward_workspace_bytes(c.groups, c.positions),
                                          ffn_->backward_workspace_bytes(c.groups, c.positions, backward_))));
  }

  Json run(CudaStream& stream) {
    const std::span<std::byte> workspace(workspace_.data(), workspace_.size());
    const auto forward_keeping = [&](std::byte* saved) {
      ffn_->forward(groups_, input_.data(), output_.data(), saved, workspace, stream);
    };
    const auto forward = [&] { forward_keeping(nullptr); };
    Json result{{"kernels", ffn_->kernels() == CudaKernels::hopper ? "hopper" : "generic"}};
    result["forward"] = time(stream, case_.flop(), forward);
    result["forward_saving"] = time(stream, case_.flop(), [&] { forward_keeping(saved_.data()); });
    groups_.input_row = in_order_.data();
    result["forward_of_rows_in_order"] = time(stream, case_.flop(), forward);
    groups_.input_row = anywhere_.data();
    result["copy_of_rows"] = time(stream, 0, [&] {
      EVENKEEL_CUDA_CALL(cudaMemcpyAsync, output_.data(), input_.data(), output_.size() * sizeof(bf16),
                         cudaMemcpyDefault, cuda::native(stream));
    });
    forward_keeping(saved_.data());
    const auto backward = [&] { ffn_->backward(groups_, backward_, workspace, stream); };
    result["backward"] = time(stream, 2 * case_.flop(), backward);
    backward_.saved = nullptr;
    // The recomputed FLOP are not counted, so that the rate can be compared with the row above.
    result["backward_computing_again"] = time(stream, 2 * case_.flop(), backward);
    backward_.saved = saved_.data();
    return result;
  }

  // Only the forward products, one call for each group, without gather and activation.
  Json run_loop(Cublas& cublas, CudaStream& stream) {
    const std::vector<std::int32_t> begin = case_.begin();
    auto* const both = reinterpret_cast<bf16*>(saved_.data());
    return time(stream, case_.flop(), [&] {
      const cudaStream_t native = cuda::native(stream);
      const auto& s = case_.shape;
      for (std::size_t g = 0; g + 1 < begin.size(); ++g) {
        const std::int64_t first = begin[g], rows = begin[g + 1] - first;
        if (rows == 0) continue;
        const auto group = static_cast<std::int64_t>(g);
        cublas.multiply(input_.data() + first * s.hidden,
                        gate_up_.data() + group * s.gate_up_rows() * s.hidden,
                        both + first * s.gate_up_rows(), rows, s.gate_up_rows(), s.hidden, native);
        // The values of h do not matter here: this reads the first half of the previous product's output.
        cublas.multiply(both + first * s.intermediate, down_.data() + group * s.hidden * s.intermediate,
                        output_.data() + first * s.hidden, rows, s.hidden, s.intermediate, native);
      }
    });
  }

 private:
  static std::int64_t biases_of(const ExpertShape& shape) {
    return shape.biases ? shape.gate_up_rows() + shape.hidden : 0;
  }

  const Case& case_;
  std::shared_ptr<const CudaExpertFfn> ffn_;
  DeviceMemory<std::int32_t> begin_, in_order_, anywhere_;
  DeviceMemory<bf16> gate_up_, down_, biases_, input_, grad_output_, output_;
  DeviceMemory<std::byte> saved_, workspace_;
  DeviceMemory<float> gradients_memory_, weight_, grad_weight_, grad_position_;
  DeviceMemory<ExpertWeights> weights_;
  DeviceMemory<DeviceExpertGradients> gradients_;
  DeviceGroups groups_;
  DeviceBackward backward_;
};

Json time_dense(Cublas& cublas, CudaStream& stream) {
  constexpr std::int64_t kSide = 8192;
  const auto a = random_numbers(kSide * kSide, 1), w = random_numbers(kSide * kSide, 1);
  const DeviceMemory<bf16> out(kSide * kSide);
  return time(stream, 2.0 * kSide * kSide * kSide, [&] {
    cublas.multiply(a.data(), w.data(), out.data(), kSide, kSide, kSide, cuda::native(stream));
  });
}

Json describe_device() {
  cudaDeviceProp properties;
  int driver = 0, runtime = 0;
  EVENKEEL_CUDA_CALL(cudaGetDeviceProperties, &properties, 0);
  EVENKEEL_CUDA_CALL(cudaDriverGetVersion, &driver);
  EVENKEEL_CUDA_CALL(cudaRuntimeGetVersion, &runtime);
  return {{"name", properties.name},
          {"multiprocessors", properties.multiProcessorCount},
          {"cuda_driver", driver},
          {"cuda_runtime", runtime}};
}

Json measure(const Json& cases) {
  CudaStream stream;
  std::string no_cublas;
  const auto cublas = Cublas::load(no_cublas);
  Json figures{{"benchmark", "products"}, {"device", describe_device()}, {"repeats", kRepeats}};
  figures["dense_8192"] = cublas ? time_dense(*cublas, stream) : Json(no_cublas);
  for (const Json& json : cases) {
    const Case c(json);
    Json row = json;
    {
      Experts experts(c, CudaKernels::automatic);
      row["evenkeel"] = experts.run(stream);
      row["cublas_loop"] = cublas ? experts.run_loop(*cublas, stream) : Json(no_cublas);
    }
    if (row["evenkeel"]["kernels"] == "hopper")
      row["evenkeel_generic"] = Experts(c, CudaKernels::generic).run(stream);
    fmt::print(stderr, "{:14} {:4} groups {:7} positions {:6}  forward {:6.1f}  backward {:6.1f} TFLOP/s\n",
               c.name, c.groups, c.positions, c.skew, row["evenkeel"]["forward"]["tflops"].get<double>(),
               row["evenkeel"]["backward"]["tflops"].get<double>());
    figures["cases"].push_back(row);
  }
  return figures;
}

}  // namespace
}  // namespace evenkeel::benchmark

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "usage: products_cuda_benchmark CASES.json OUT.json\n";
    return 2;
  }
  if (evenkeel::cuda::gpu_count() == 0) {
    std::cerr << "nothing measured: " << evenkeel::cuda::why_no_gpu() << '\n';
    return 0;
  }
  try {
    const auto cases = nlohmann::ordered_json::parse(std::ifstream(arguments[1]));
    std::ofstream(arguments[2]) << evenkeel::benchmark::measure(cases.at("cases")).dump(1) << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
