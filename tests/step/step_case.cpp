#include "tests/step/step_case.h"

#include <algorithm>
#include <cmath>

#include "evenkeel/budget/buffer_bytes.h"
#include "evenkeel/io/trace_file.h"

namespace evenkeel::testing {

namespace {

double uniform(std::mt19937_64& random) {
  return std::uniform_real_distribution<double>(0, 1)(random);
}

RoutedStep concentrated_step(std::mt19937_64& random) {
  RoutedStep step;
  step.k = 1 << random() % 3;
  const int ranks = 2 << random() % 3;
  const int experts = ranks * (2 << random() % 4);
  step.placement = LayerPlacement::contiguous(experts, ranks);
  const double share = uniform(random);
  const auto hot = 1 + static_cast<int>(random() % 4);
  for (int rank = 0; rank < ranks; ++rank)
    for (auto& id : step.ids.emplace_back(static_cast<std::size_t>(kCaseTokens * step.k)))
      id = static_cast<int>(random() % static_cast<unsigned>(uniform(random) < share ? hot : experts));
  return step;
}

// Each rank takes a random window of the shipped trace, from a training step at which few experts got most
// tokens.
RoutedStep recorded_step(std::mt19937_64& random) {
  static const auto trace = open_trace(EVENKEEL_SOURCE_DIR "/data/tiny-moe/routing_step50.npz");
  const TraceInfo& info = trace->info();
  RoutedStep step;
  const int ranks = 2 << random() % 3;
  step.placement = LayerPlacement::contiguous(info.num_experts, ranks);
  const LayerId layer(static_cast<int>(random() % static_cast<unsigned>(info.num_layers)));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto begin =
        static_cast<std::int64_t>(random() % static_cast<unsigned>(info.num_tokens - kCaseTokens));
    const LayerRouting window = trace->read_layer(layer, {begin, begin + kCaseTokens});
    step.k = window.top_k;
    step.ids.emplace_back(window.ids.begin(), window.ids.end());
  }
  return step;
}

// Square weight matrices in f32 or bf16. Relative to a rank's rows they are at least as large as in real
// layers.
ChunkShape random_shape(std::mt19937_64& random, const RoutedStep& step) {
  ChunkShape shape;
  shape.num_ranks = step.ranks();
  shape.num_experts = step.experts();
  shape.top_k = step.k;
  shape.hidden = std::int64_t{256} << random() % 3;
  shape.element_bytes = random() % 2 == 0 ? 2 : 4;
  const std::int64_t matrix = shape.hidden * shape.hidden;
  shape.saved_bytes = 2 * shape.hidden * shape.element_bytes;
  shape.weight_bytes = 3 * matrix * shape.element_bytes;
  shape.forward_weight_bytes = shape.backward_weight_bytes = shape.weight_bytes;
  shape.arrival_bytes = shape.recompute_weight_bytes = 2 * matrix * shape.element_bytes;
  shape.gradient_bytes = 3 * matrix * 4;
  shape.workspace = {32 << 10, 32 << 10, 32 << 10};
  shape.most_workspace = {2 << 20, 3 << 20, 3 << 20};
  return shape;
}

// The bytes of rows, activations, weights and gradients that a framework holds in each phase.
std::vector<PhaseBytes> random_phases(std::mt19937_64& random, const ChunkShape& shape) {
  const std::int64_t row = shape.row_bytes(), expert = shape.weight_bytes;
  const std::int64_t natives = shape.num_experts / shape.num_ranks;
  const std::int64_t activations = row * static_cast<std::int64_t>(1 + random() % 6);
  return {
      {.per_token = row, .per_sent = row, .per_received = row, .per_borrowed = expert, .per_lent = expert},
      {.per_received = row, .per_position = row + activations, .per_borrowed = expert, .per_lent = expert},
      {.per_assignment = row,
       .per_received = row,
       .per_position = 2 * row + activations,
       .per_borrowed = expert,
       .per_lent = expert,
       .fixed = row},
      {.per_token = row,
       .per_sent = row,
       .per_received = row,
       .per_position = 3 * row + activations,
       .per_borrowed = 2 * expert,
       .per_lent = expert,
       .fixed = natives * expert},
      {.per_token = row,
       .per_received = 2 * row,
       .per_position = row,
       .per_borrowed = 2 * expert,
       .per_lent = 3 * expert,
       .fixed = natives * expert}};
}

std::int64_t of_one_token(const StepCase& of) {
  std::int64_t least = 0;
  const std::int64_t k = of.step.k, ranks = of.step.ranks();
  for (const PhaseBytes& phase : of.phases)
    least = std::max(least, phase.per_token + k * (phase.per_assignment + phase.per_sent) +
                                (ranks - 1) * k * phase.per_received + ranks * k * phase.per_position +
                                phase.fixed);
  return least;
}

}  // namespace

StepCase::StepCase(unsigned seed) {
  std::mt19937_64 random(seed);
  step = seed % 5 == 4 ? recorded_step(random) : concentrated_step(random);
  shape = random_shape(random, step);
  for (double* rate : {&options.cost.flops_per_second, &options.cost.weight_bytes_per_second,
                       &options.cost.link_bytes_per_second})
    *rate *= std::exp(2 * uniform(random) - 1);
  options.cost.overlap = uniform(random);
  options.recompute = random() % 4 == 0 ? Recompute::chunk : Recompute::automatic;
  const ChunkLoad most = largest_load(shape, kCaseTokens);
  const ChunkLoad least = largest_load(shape, 1);
  bytes = static_cast<std::int64_t>(std::pow(0.02, 0.3 + 0.7 * uniform(random)) *
                                    static_cast<double>(backward_bytes(shape, most, most.positions_here)));
  bytes = std::max(bytes, 2 * std::max(forward_bytes(shape, least, 0), recompute_bytes(shape, least)));
  phases = random_phases(random, shape);
  phase_budget =
      static_cast<std::int64_t>(std::exp(3 * uniform(random)) * static_cast<double>(of_one_token(*this)));
}

std::vector<RankMemory> StepCase::memories(const RoutedStep& of) const {
  std::vector<RankMemory> all;
  for (std::int64_t tokens : of.tokens()) all.push_back({tokens, bytes, 0, bytes, bytes});
  return all;
}

RoutedStep StepCase::part(std::int64_t begin, std::int64_t end) const {
  RoutedStep part = step;
  for (auto& ids : part.ids) {
    ids.resize(static_cast<std::size_t>(end * step.k));
    ids.erase(ids.begin(), ids.begin() + begin * step.k);
  }
  return part;
}

void decide(const StepCase& problem, const DecisionOptions& options, StepPass pass, const RoutedStep& tokens,
            PlannerOptions::Kind kind, StepDecision& decision) {
  BufferBytes bytes(problem.shape, options.memory.recompute);
  const auto planner = make_planner({kind, 1000, 16, 1000});
  std::vector<std::int32_t> numbers;
  const BlockTable table = block_table(tokens, kCaseBlocks, numbers);
  const Counts counts = tokens.counts();
  const std::vector<RankMemory> memories = problem.memories(tokens);
  StepDecider(bytes, options, tokens.ranks())
      .decide({.pass = pass,
               .table = table,
               .counts = counts,
               .homes = tokens.placement,
               .memories = memories,
               .top_k = tokens.k,
               .planner = planner.get()},
              decision);
}

}  // namespace evenkeel::testing
