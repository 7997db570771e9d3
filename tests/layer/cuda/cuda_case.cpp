#include "tests/layer/cuda/cuda_case.h"

#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/layer/cuda/captured_step.h"
#include "tests/layer/cuda/rank_on_gpu.h"

namespace evenkeel::testing {

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
    const auto sync_ranks = [&] {
      std::int64_t none[] = {0};
      CpuStream host_stream;
      comm.all_reduce(none, Reduction::sum, host_stream, "test").wait();
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
      step.choose(cases[i]);
      layer.clear_gradients();
      sync_ranks();
      captured.replay();
      layer.stream().synchronize();
      sync_ranks();
      step.read(runs[i].numbers, options.backward);
      if (options.backward) layer.read(runs[i].numbers);
    }
  });
  return runs;
}

}  // namespace evenkeel::testing
