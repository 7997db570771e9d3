// A layer whose ranks are processes that mpirun starts, on one host or on several:
//
//   mpirun -n 8 build/release/bin/example_mpi_layer
//
// Every four ranks form one expert-parallel group, as in data-parallel training.
#include <evenkeel/comm/hosts.h>
#include <evenkeel/comm/mpi/mpi_ranks.h>
#include <evenkeel/device/cpu/stream.h>
#include <evenkeel/layer/moe_layer.h>

#include <cstdio>
#include <exception>
#include <vector>

using namespace evenkeel;

constexpr int experts = 16, top_k = 2, group_size = 4;
constexpr std::int64_t tokens = 256, hidden = 64, intermediate = 128;  // tokens of each rank

// Runs a forward pass and returns the sum of its output.
double step(Communicator& group, unsigned seed) {
  MoeOptions options;
  options.max_tokens = tokens;
  options.with_backward = false;
  options.cpu().node_of_rank = host_of_rank(group);  // on several hosts, a row crosses to each host once
  Arena arena(Device::cpu());
  MoeLayer layer(group, arena, {experts, top_k, {.hidden = hidden, .intermediate = intermediate}},
                 LayerPlacement::contiguous(experts, group.size()), options);

  const std::vector<float> gate_up(2 * intermediate * hidden, 0.01f), down(hidden * intermediate, 0.02f);
  const std::vector<ExpertWeights> weights(layer.natives().size(),
                                           {gate_up.data(), down.data(), nullptr, nullptr});
  layer.set_weights(weights);

  std::vector<std::int32_t> chosen;  // most tokens go to expert 0
  for (std::int32_t t = 0; t < tokens; ++t)
    chosen.insert(chosen.end(), {t % 10 == 0 ? 1 : 0, 6 + t % (experts - 6)});
  const std::vector<float> router(chosen.size(), 0.5f);
  std::vector<float> in(tokens * hidden, 0.1f * static_cast<float>(seed + 1)), out(in.size());
  layer.forward({in.data(), tokens, hidden}, {tokens, top_k, chosen, router}, {out.data(), tokens, hidden});
  double sum = 0;
  for (const float value : out) sum += value;
  return sum;
}

int main() {
  try {
    run_mpi_ranks([](Communicator& world) {
      const int me = world.rank().value();
      const std::unique_ptr<Communicator> group = world.split(me / group_size);
      double sums[] = {step(*group, static_cast<unsigned>(me))};
      CpuStream stream;
      world.all_reduce(sums, Reduction::sum, stream).wait();
      if (me == 0) std::printf("%d ranks in groups of %d: %.6f\n", world.size(), group_size, sums[0]);
    });
  } catch (const std::exception& error) {  // on each rank, the error names the rank that failed
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
