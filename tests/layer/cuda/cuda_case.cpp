#include "tests/layer/cuda/cuda_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/layer/cuda/captured_step.h"
#include "tests/layer/cuda/rank_on_gpu.h"
#include "tests/layer/error_bound.h"

namespace evenkeel::testing {

namespace {

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

void expect_tokens(const MoeResult& result, const DenseResult& dense, const DenseResult& bound, bool backward,
                   const std::string& what) {
  EXPECT_LE(worst(result.output, dense.output, bound.output), 1.0) << what << ": output";
  if (!backward) return;
  EXPECT_LE(worst(result.grad_hidden, dense.grad_hidden, bound.grad_hidden), 1.0) << what << ": hidden";
  EXPECT_LE(worst(result.grad_router_weights, dense.grad_router_weights, bound.grad_router_weights), 1.0)
      << what << ": router weights";
}

}  // namespace

MoeResult empty_result(const MoeCase& problem) {
  const MoeShape& moe = problem.shape().moe;
  MoeResult result;
  result.output = Tensor(problem.all_tokens() * moe.expert.hidden, moe.expert.type);
  result.grad_hidden = result.output;
  result.grad_router_weights.resize(problem.top_k().experts.size());
  for (auto* tensors : {&result.gate_up, &result.down, &result.gate_up_bias, &result.down_bias})
    tensors->resize(static_cast<std::size_t>(moe.num_experts));
  return result;
}

CudaRun run_on_gpu(const MoeCase& problem, const CudaRunOptions& options) {
  CudaRun run;
  run.numbers = empty_result(problem);
  run_ranks(problem.ranks(), [&](Communicator& comm) {
    LayerOnGpu layer(problem, comm, options);
    StepOnGpu step(problem, comm.rank());
    for (int i = 0; i < options.steps; ++i) {
      layer.clear_gradients();
      ForwardState state = step.forward(layer);
      const StepReport report = layer.layer().report(state);
      if (comm.rank() == RankId(0)) {
        run.report = report;
        run.peak_bytes = layer.peak_bytes();
      }
      if (options.backward) step.backward(layer, std::move(state));
      layer.stream().synchronize();
    }
    step.read(run.numbers, options.backward);
    if (options.backward) layer.read(run.numbers);
  });
  return run;
}

std::vector<CudaRun> replay_on_gpu(const MoeCase& first, const std::vector<MoeCase>& cases,
                                   const CudaRunOptions& options) {
  std::vector<CudaRun> runs(cases.size());
  for (CudaRun& run : runs) run.numbers = empty_result(first);
  run_ranks(first.ranks(), [&](Communicator& comm) {
    LayerOnGpu layer(first, comm, options);
    StepOnGpu step(first, comm.rank());
    const auto whole = [&] {
      ForwardState state = step.forward(layer);
      if (options.backward) step.backward(layer, std::move(state));
    };
    whole();
    layer.stream().synchronize();
    CapturedStep captured(comm, layer.stream(), whole);
    const auto meet = [&] {
      std::int64_t none[] = {0};
      CpuStream words;
      comm.all_reduce(none, Reduction::sum, words, "test").wait();
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
      step.choose(cases[i]);
      layer.clear_gradients();
      meet();
      captured.replay();
      layer.stream().synchronize();
      meet();
      step.read(runs[i].numbers, options.backward);
      if (options.backward) layer.read(runs[i].numbers);
    }
  });
  return runs;
}

void expect_dense_tokens(const MoeCase& problem, const MoeResult& result, bool backward,
                         const std::string& what) {
  expect_tokens(result, problem.dense(backward), error_bound(problem, backward), backward, what);
}

void expect_dense_layer(const MoeCase& problem, const MoeResult& result, bool backward,
                        const std::string& what) {
  const DenseResult dense = problem.dense(backward);
  const DenseResult bound = error_bound(problem, backward);
  expect_tokens(result, dense, bound, backward, what);
  if (!backward) return;
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
