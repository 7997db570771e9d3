#include "tests/layer/cuda/cuda_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/layer/cuda/captured_step.h"
#include "tests/layer/error_bound.h"
#include "tests/support/device_memory.h"

namespace evenkeel::testing {

namespace {

using Bytes = DeviceMemory<std::byte>;

Bytes upload(const void* from, std::int64_t bytes) {
  return Bytes(std::span(static_cast<const std::byte*>(from), static_cast<std::size_t>(bytes)));
}

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// What one rank has in device memory beside its layer.
class RankOnGpu {
 public:
  RankOnGpu(const MoeCase& problem, Communicator& comm, const CudaRunOptions& options)
      : shape_(problem.shape().moe),
        rank_(comm.rank().value()),
        first_(problem.first_token(rank_)),
        tokens_(problem.top_k_of(rank_).tokens),
        arena_(Device::cuda(0), options.budget),
        placement_(options.homes.empty() ? LayerPlacement::contiguous(shape_.num_experts, comm.size())
                                         : LayerPlacement(options.homes, comm.size())),
        layer_(comm, arena_, stream_, shape_, placement_,
               {.planner = options.planner,
                .max_tokens = std::max<std::int64_t>(1, std::ranges::max(problem.shape().tokens)),
                .with_backward = options.backward,
                .states_in_flight = 1,
                .places = options.places,
                .rounds = options.rounds}) {
    const std::int64_t row = shape_.expert.hidden * 2;
    hidden_ = upload(problem.hidden(first_, tokens_).data, tokens_ * row);
    grad_output_ = upload(problem.grad_output(first_, tokens_).data, tokens_ * row);
    output_ = Bytes(at(tokens_ * row));
    grad_hidden_ = Bytes(at(tokens_ * row));
    experts_ = DeviceMemory<std::int32_t>(at(tokens_ * shape_.top_k));
    weights_ = DeviceMemory<float>(at(tokens_ * shape_.top_k));
    grad_weights_ = DeviceMemory<float>(at(tokens_ * shape_.top_k));
    choose(problem);
    set_experts(problem, options.backward);
  }

  // Takes a case's choices and router weights, and forgets what was computed.
  void choose(const MoeCase& problem) {
    const TopK top_k = problem.top_k_of(rank_);
    experts_ = assigned(std::move(experts_), top_k.experts);
    weights_ = assigned(std::move(weights_), top_k.weights);
    output_.poison();
    grad_hidden_.poison();
    grad_weights_.poison();
  }
  void clear_gradients() {
    for (DeviceMemory<float>& tensor : gradients_) tensor.clear();
  }

  CudaForwardState forward() {
    return layer_.forward(hidden_.data(), {tokens_, experts_.data(), weights_.data()}, output_.data());
  }
  void backward(CudaForwardState state) {
    layer_.backward(std::move(state), grad_output_.data(), grad_hidden_.data(), grad_weights_.data());
  }
  CudaMoeLayer& layer() { return layer_; }
  CudaStream& stream() { return stream_; }
  std::int64_t peak_bytes() const { return arena_.peak_bytes(); }

  void read(MoeResult& result, bool backward) const {
    const std::int64_t numbers = tokens_ * shape_.expert.hidden;
    const auto copy = [&](const auto& from, void* to) { std::memcpy(to, from.data(), from.size()); };
    if (numbers > 0) copy(output_.read(), result.output.data(first_ * shape_.expert.hidden));
    if (!backward) return;
    if (numbers > 0) copy(grad_hidden_.read(), result.grad_hidden.data(first_ * shape_.expert.hidden));
    std::ranges::copy(grad_weights_.read(), result.grad_router_weights.begin() + first_ * shape_.top_k);
    const auto natives = placement_.natives(RankId(rank_));
    for (std::size_t i = 0; i < natives.size(); ++i) {
      const std::size_t e = natives[i].offset();
      result.gate_up[e] = gradients_[4 * i].read();
      result.down[e] = gradients_[4 * i + 1].read();
      result.gate_up_bias[e] = gradients_[4 * i + 2].read();
      result.down_bias[e] = gradients_[4 * i + 3].read();
    }
  }

 private:
  template <class T>
  static DeviceMemory<T> assigned(DeviceMemory<T> memory, std::span<const T> values) {
    if (!values.empty())
      EVENKEEL_CUDA_CALL(cudaMemcpy, memory.data(), values.data(), values.size_bytes(), cudaMemcpyDefault);
    return memory;
  }

  void set_experts(const MoeCase& problem, bool backward) {
    const ExpertShape& e = shape_.expert;
    const std::int64_t elements[] = {e.gate_up_rows() * e.hidden, e.intermediate * e.hidden,
                                     e.biases ? e.gate_up_rows() : 0, e.biases ? e.hidden : 0};
    const auto natives = placement_.natives(RankId(rank_));
    std::vector<ExpertWeights> weights;
    std::vector<ExpertGradients> gradients;
    for (const ExpertWeights& own : problem.weights_of(natives)) {
      const void* const tensors[] = {own.gate_up, own.down, own.gate_up_bias, own.down_bias};
      void* parts[4] = {};
      float* sums[4] = {};
      for (std::size_t part = 0; part < 4; ++part) {
        if (elements[part] > 0) {
          tensors_.push_back(upload(tensors[part], 2 * elements[part]));
          parts[part] = tensors_.back().data();
        }
        gradients_.emplace_back(at(elements[part]));
        sums[part] = gradients_.back().data();
      }
      weights.push_back({parts[0], parts[1], parts[2], parts[3]});
      gradients.push_back({sums[0], sums[1], sums[2], sums[3]});
    }
    if (!backward) gradients.clear();
    layer_.set_weights(weights, gradients);
  }

  MoeShape shape_;
  int rank_;
  std::int64_t first_, tokens_;
  CudaStream stream_{0};
  Arena arena_;
  LayerPlacement placement_;
  CudaMoeLayer layer_;
  Bytes hidden_, grad_output_, output_, grad_hidden_;
  DeviceMemory<std::int32_t> experts_;
  DeviceMemory<float> weights_, grad_weights_;
  std::vector<Bytes> tensors_;
  std::vector<DeviceMemory<float>> gradients_;
};

MoeResult room_for(const MoeCase& problem) {
  const MoeShape& moe = problem.shape().moe;
  MoeResult result;
  result.output = Tensor(problem.all_tokens() * moe.expert.hidden, moe.expert.type);
  result.grad_hidden = result.output;
  result.grad_router_weights.resize(problem.top_k().experts.size());
  for (auto* tensors : {&result.gate_up, &result.down, &result.gate_up_bias, &result.down_bias})
    tensors->resize(at(moe.num_experts));
  return result;
}

// Largest |actual - expected| / bound; infinite for what is no number.
template <class Actual>
double worst(const Actual& actual, const std::vector<double>& expected, const std::vector<double>& bound) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double number = static_cast<double>(actual[static_cast<decltype(actual.size())>(i)]);
    if (!std::isfinite(number)) return INFINITY;
    const double error = std::abs(number - expected[i]);
    if (error > 0) largest = std::max(largest, error / bound[i]);
  }
  return largest;
}

}  // namespace

CudaRun run_on_gpu(const MoeCase& problem, const CudaRunOptions& options) {
  CudaRun run;
  run.numbers = room_for(problem);
  run_ranks(problem.ranks(), [&](Communicator& comm) {
    RankOnGpu rank(problem, comm, options);
    for (int step = 0; step < options.steps; ++step) {
      rank.clear_gradients();
      CudaForwardState state = rank.forward();
      const CudaStepReport report = rank.layer().report(state);
      if (comm.rank() == RankId(0)) {
        run.report = report;
        run.peak_bytes = rank.peak_bytes();
      }
      if (options.backward) rank.backward(std::move(state));
      rank.stream().synchronize();
    }
    rank.read(run.numbers, options.backward);
  });
  return run;
}

std::vector<CudaRun> replay_on_gpu(const MoeCase& first, const std::vector<MoeCase>& cases,
                                   const CudaRunOptions& options) {
  std::vector<CudaRun> runs(cases.size());
  for (CudaRun& run : runs) run.numbers = room_for(first);
  run_ranks(first.ranks(), [&](Communicator& comm) {
    RankOnGpu rank(first, comm, options);
    const auto step = [&] {
      CudaForwardState state = rank.forward();
      if (options.backward) rank.backward(std::move(state));
    };
    step();
    rank.stream().synchronize();
    CapturedStep captured(comm, rank.stream(), step);
    const auto meet = [&] {
      std::int64_t none[] = {0};
      CpuStream words;
      comm.all_reduce(none, Reduction::sum, words, "test").wait();
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
      rank.choose(cases[i]);
      rank.clear_gradients();
      meet();
      captured.replay();
      rank.stream().synchronize();
      meet();
      rank.read(runs[i].numbers, options.backward);
    }
  });
  return runs;
}

void expect_dense_layer(const MoeCase& problem, const MoeResult& result, bool backward,
                        const std::string& what) {
  const DenseResult dense = problem.dense(backward);
  const DenseResult bound = error_bound(problem, backward);
  EXPECT_LE(worst(result.output, dense.output, bound.output), 1.0) << what << ": output";
  if (!backward) return;
  EXPECT_LE(worst(result.grad_hidden, dense.grad_hidden, bound.grad_hidden), 1.0) << what << ": hidden";
  EXPECT_LE(worst(result.grad_router_weights, dense.grad_router_weights, bound.grad_router_weights), 1.0)
      << what << ": router weights";
  for (std::size_t e = 0; e < dense.grad_experts.size(); ++e) {
    const DenseResult::Expert& expected = dense.grad_experts[e];
    const DenseResult::Expert& limit = bound.grad_experts[e];
    EXPECT_LE(worst(result.gate_up[e], expected.gate_up, limit.gate_up), 1.0) << what << ": gate_up " << e;
    EXPECT_LE(worst(result.down[e], expected.down, limit.down), 1.0) << what << ": down " << e;
    if (!problem.shape().moe.expert.biases) continue;
    EXPECT_LE(worst(result.gate_up_bias[e], expected.gate_up_bias, limit.gate_up_bias), 1.0)
        << what << " " << e;
    EXPECT_LE(worst(result.down_bias[e], expected.down_bias, limit.down_bias), 1.0) << what << " " << e;
  }
}

}  // namespace evenkeel::testing
