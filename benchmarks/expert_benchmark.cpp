// Times the expert feed-forward network as the layer runs it (gather, two products, activation, scatter), for
// row counts that have no primitive of their own. Beside it, the two products alone: by oneDNN with a
// primitive for exactly that row count, and by OpenBLAS. One thread, CPU time, medians of interleaved runs.
//
//   expert_benchmark [hidden intermediate]
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl_version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <vector>

#include "evenkeel/base/clock.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/study/tensors.h"

namespace evenkeel {
namespace {

Tensor filled(std::int64_t count, DataType type) {
  return seeded_tensor(type, count, 1, 0.1);
}

const float* floats(const Tensor& tensor) {
  return reinterpret_cast<const float*>(tensor.at(0));
}

dnnl::memory::data_type dnnl_type(DataType type) {
  return type == DataType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& stream() {
  static dnnl::stream stream(cpu());
  return stream;
}

dnnl::matmul::primitive_desc product_of(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                        const dnnl::memory::desc& c) {
#if DNNL_VERSION_MAJOR >= 3
  return {cpu(), a, b, c};
#else
  return {dnnl::matmul::desc(a, b, c), cpu()};
#endif
}

// C[m, n] = A[m, k] B[n, k]^T, with B packed and a primitive for exactly this m.
std::function<void()> onednn_alone(std::int64_t m, std::int64_t n, std::int64_t k, DataType type,
                                   const Tensor& a, const Tensor& b, const Tensor& c) {
  using dnnl::memory;
  const dnnl::engine& engine = cpu();
  const memory::desc a_desc({m, k}, dnnl_type(type), memory::format_tag::ab);
  const memory::desc any({k, n}, dnnl_type(type), memory::format_tag::any);
  const memory::desc c_desc({m, n}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc made = product_of(a_desc, any, c_desc);
  const memory plain({{k, n}, dnnl_type(type), memory::format_tag::ba}, engine, b.at(0));
  memory packed(made.weights_desc(), engine);
  dnnl::reorder(plain, packed).execute(stream(), const_cast<memory&>(plain), packed);
  return [product = dnnl::matmul(made), packed, a_memory = memory(a_desc, engine, a.at(0)),
          c_memory = memory(c_desc, engine, c.at(0))] {
    product.execute(stream(),
                    {{DNNL_ARG_SRC, a_memory}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, c_memory}});
  };
}

using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float,
                       float*, int);

// Without this variable OpenBLAS may treat new CPUs as old ones. Returns null if OpenBLAS is not installed.
Sgemm openblas() {
  if (__builtin_cpu_supports("avx512f")) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
}

// Medians of interleaved runs: each round runs every contender once.
std::vector<double> medians(const std::vector<std::function<void()>>& contenders, int runs) {
  std::vector<std::vector<double>> seconds(contenders.size());
  for (int run = -2; run < runs; ++run)
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const double start = thread_cpu_seconds();
      contenders[i]();
      if (run >= 0) seconds[i].push_back(thread_cpu_seconds() - start);
    }
  std::vector<double> result;
  for (auto& each : seconds) {
    std::nth_element(each.begin(), each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2), each.end());
    result.push_back(each[each.size() / 2]);
  }
  return result;
}

void table(std::int64_t D, std::int64_t F, DataType type, Sgemm sgemm) {
  constexpr std::int64_t kMost = 1024;
  Arena arena(Device::cpu());
  const auto ffn = make_cpu_expert_ffn({D, F, Activation::swiglu, false, type}, false);
  const Tensor x = filled(kMost * D, type), gate_up = filled(2 * F * D, type);
  const Tensor down = filled(D * F, type), h = filled(kMost * F, type);
  const Tensor y = filled(kMost * D, type), wide = filled(kMost * 2 * F, DataType::f32);
  const Buffer prepared = arena.allocate(ffn->prepared_bytes(Pass::forward), "benchmark");
  const Buffer workspace = arena.allocate(ffn->workspace_bytes(Pass::forward), "benchmark");
  const ExpertWeights weights{gate_up.at(0), down.at(0)};
  ffn->prepare(weights, Pass::forward, prepared.bytes());
  std::vector<std::int32_t> from(kMost), to(kMost);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::int32_t>(i * 389 % kMost);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::int32_t>(i * 227 % kMost);

  std::printf("%s, %lld x %lld swiglu, GFLOP/s\n%6s %10s %10s %10s %10s %10s\n",
              std::string(name_of(type)).c_str(), static_cast<long long>(D), static_cast<long long>(F),
              "rows", "evenkeel", "oneDNN", "OpenBLAS", "of oneDNN", "x OpenBLAS");
  for (const int m : {1, 2, 4, 8, 16, 33, 64, 65, 71, 100, 129, 200, 255, 257, 300, 511, 777, 1024}) {
    const ExpertGroup group{prepared.data(), {}, 0, m};
    const auto first = onednn_alone(m, 2 * F, D, type, x, gate_up, wide);
    const auto second = onednn_alone(m, D, F, type, h, down, wide);
    std::vector<std::function<void()>> contenders = {
        [&] {
          ffn->forward({{&group, 1}, from, to}, {nullptr, {}, 0, x.at(0)}, y.at(0), workspace.bytes());
        },
        [&] {
          first();
          second();
        }};
    if (sgemm != nullptr && type == DataType::f32)
      contenders.emplace_back([&] {
        const auto product = [&](std::int64_t n, std::int64_t k, const Tensor& a, const Tensor& b) {
          sgemm(101, 111, 112, m, static_cast<int>(n), static_cast<int>(k), 1.0f, floats(a),
                static_cast<int>(k), floats(b), static_cast<int>(k), 0.0f,
                reinterpret_cast<float*>(wide.at(0)), static_cast<int>(n));
        };
        product(2 * F, D, x, gate_up);
        product(D, F, h, down);
      });
    const auto seconds = medians(contenders, m > 256 ? 15 : 41);
    const double work = 6e-9 * static_cast<double>(m * D * F);
    std::printf("%6d %10.1f %10.1f", m, work / seconds[0], work / seconds[1]);
    if (seconds.size() > 2)
      std::printf(" %10.1f %9.0f%% %10.2f\n", work / seconds[2], 100 * seconds[1] / seconds[0],
                  seconds[2] / seconds[0]);
    else
      std::printf(" %10s %9.0f%% %10s\n", "-", 100 * seconds[1] / seconds[0], "-");
  }
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  // OpenMP reads the number of threads at program start, so the program restarts itself with one thread.
  const char* const threads = std::getenv("OMP_NUM_THREADS");
  if (threads == nullptr || std::string_view(threads) != "1") {
    setenv("OMP_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", argv);
    std::perror("expert_benchmark: cannot start again with one thread");
    return 1;
  }
  const std::int64_t hidden = argc > 2 ? std::atoll(argv[1]) : 768;
  const std::int64_t intermediate = argc > 2 ? std::atoll(argv[2]) : 768;
  const auto sgemm = evenkeel::openblas();
  evenkeel::table(hidden, intermediate, evenkeel::DataType::f32, sgemm);
  evenkeel::table(hidden, intermediate, evenkeel::DataType::bf16, sgemm);
}
