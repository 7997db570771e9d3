// One training step of an expert-parallel layer: forward and backward on four ranks, which are threads here.
// It runs first with unlimited memory, then with half of what it used.
#include <evenkeel/comm/thread/run_ranks.h>
#include <evenkeel/layer/moe_layer.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

using namespace evenkeel;

constexpr int ranks = 4, experts = 16, top_k = 2;
constexpr std::int64_t tokens = 512, hidden = 64, intermediate = 128;  // tokens of each rank

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 draw(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(draw);
  return values;
}

// Runs one rank's step. Returns the most bytes that its arena held.
std::int64_t step(Communicator& comm, std::int64_t budget) {
  const auto me = static_cast<unsigned>(comm.rank().value());
  MoeOptions options;
  options.max_tokens = tokens;
  options.cpu().on_step = [me](const StepStatistics& s) {
    if (me == 0) std::printf("  rank 0, %s: %d chunk(s)\n", s.backward ? "backward" : "forward", s.chunks);
  };
  Arena arena(Device::cpu(), budget);
  MoeLayer layer(comm, arena, {experts, top_k, {.hidden = hidden, .intermediate = intermediate}},
                 LayerPlacement::contiguous(experts, ranks), options);

  // Weights and gradients of this rank's experts. Backward adds to the gradients.
  std::vector<std::vector<float>> gate_up, down, grad_gate_up, grad_down;
  std::vector<ExpertWeights> weights;
  std::vector<ExpertGradients> gradients;
  for (const ExpertId expert : layer.natives()) {
    const auto seed = static_cast<unsigned>(expert.value());
    gate_up.push_back(random_values(2 * intermediate * hidden, seed));
    down.push_back(random_values(hidden * intermediate, seed + experts));
    grad_gate_up.emplace_back(gate_up.back().size());
    grad_down.emplace_back(down.back().size());
    weights.push_back({.gate_up = gate_up.back().data(), .down = down.back().data()});
    gradients.push_back({.gate_up = grad_gate_up.back().data(), .down = grad_down.back().data()});
  }
  layer.set_weights(weights);

  // This rank's tokens. Nine in ten go to expert 0.
  std::vector<std::int32_t> chosen;
  for (std::int32_t t = 0; t < tokens; ++t) {
    chosen.push_back(t % 10 == 0 ? 1 + t % 5 : 0);
    chosen.push_back(6 + t % (experts - 6));
  }
  const std::vector<float> router(chosen.size(), 0.5f);
  std::vector<float> in = random_values(tokens * hidden, 100 + me), out(in.size()), grad_in(in.size());
  std::vector<float> grad_out(in.size(), 1.0f), grad_router(chosen.size());

  ForwardState state = layer.forward({in.data(), tokens, hidden}, {tokens, top_k, chosen, router},
                                     {out.data(), tokens, hidden});
  layer.backward(std::move(state), {grad_out.data(), tokens, hidden},
                 {{grad_in.data(), tokens, hidden}, grad_router, gradients});
  return arena.peak_bytes();
}

// The most bytes that any of the ranks held.
std::int64_t run(std::int64_t budget) {
  std::vector<std::int64_t> peaks(ranks);
  run_ranks(ranks, [&](Communicator& comm) { peaks[comm.rank().offset()] = step(comm, budget); });
  const std::int64_t worst = *std::max_element(peaks.begin(), peaks.end());
  std::printf("worst rank's peak: %lld bytes\n", static_cast<long long>(worst));
  return worst;
}

int main() {
  const std::int64_t peak = run(Arena::kNoBudget);
  const std::int64_t budget = peak / 2;
  std::printf("and with a budget of %lld:\n", static_cast<long long>(budget));
  return run(budget) <= budget ? 0 : 1;
}
