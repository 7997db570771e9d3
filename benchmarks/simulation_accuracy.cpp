// How far the simulator's seconds differ from those of thread ranks on this machine.
//
// Machine    measured by calibrate() with the same layer before each scenario; nothing is fitted to the
//            steps.
// Measured   the critical path of the LLEP paper's scenarios under ep, least-loaded and level.
// Predicted  the same steps replayed: the slowest rank's seconds of each phase, summed. Like the measured
//            figure, it gives no credit for overlap.
//
// usage: simulation_accuracy [--filter 0.95] [--tokens 512] [--pairs 3] [--backward] [--phases]
//        simulation_accuracy --published [--phases]     against published measurements; times nothing here
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"
#include "evenkeel/sim/layer_replay.h"
#include "evenkeel/study/calibration.h"
#include "evenkeel/study/series.h"
#include "tests/sim/critical_path.h"
#include "tests/sim/published.h"

namespace {

using namespace evenkeel;
using published::PhaseSeconds;
using published::Prediction;
using Kind = PlannerOptions::Kind;

constexpr const char* kMethods[] = {"ep", "llep", "level"};
constexpr double kTie = 1.10;  // measured times within this ratio count as equal

SimSetup sim_setup(const StudySetup& study, const Machine& machine) {
  Topology::Description topology = Topology::uniform(1, study.ranks).description();
  topology.within = {machine.link_bytes_per_second * 1e-9, machine.link_seconds * 1e6};
  SimSetup setup{.topology = Topology(topology), .machine = machine, .backward = study.backward};
  SimLayer& layer = setup.layer.emplace();
  layer.chunk = chunk_shape(study.shape, study.ranks,
                            *make_cpu_expert_ffn(study.shape.expert, study.backward), study.backward);
  layer.sizes = {step_expert(layer.chunk), static_cast<double>(layer.chunk.row_bytes()),
                 static_cast<double>(layer.chunk.weight_bytes)};
  setup.most_tokens = study.tokens;
  setup.planner = study.planners.front();
  return setup;
}

LayerTokens tokens_of(const Batch& batch, int num_experts) {
  LayerTokens tokens{
      .top_k = batch.top_k, .first_token = batch.first_token, .experts = batch.experts, .counts = {}};
  tokens.counts.resize(batch.num_ranks(), num_experts);
  for (RankId rank : indices<RankId>(batch.num_ranks()))
    for (const std::int32_t id : batch.top_k_of(rank).experts)
      ++tokens.counts
            .rows()[rank.offset() * static_cast<std::size_t>(num_experts) + static_cast<std::size_t>(id)];
  tokens.counts.sum_loads();
  return tokens;
}

void print(const char* what, const std::vector<Prediction>& predictions, bool each) {
  for (const Prediction& one : predictions)
    if (each)
      fmt::print("  {:48} measured {:8.3f}, predicted {:8.3f} ({:.3f} to {:.3f}), {:+.1f} %\n", one.what,
                 one.measured, one.predicted, one.least, one.most, 100 * (one.predicted / one.measured - 1));
  const published::Errors errors = published::errors_of(predictions);
  fmt::print("{}: {} figures, error median {:.1f} % ({:+.1f} % signed), 90th percentile {:.1f} %", what,
             predictions.size(), 100 * errors.median, 100 * errors.signed_median, 100 * errors.p90);
  if (errors.within_draws > 0)
    fmt::print("; {:.0f} % of the measured lie between the draws", 100 * errors.within_draws);
  fmt::print("\n");
}

void print_phases(const char* what, const PhaseSeconds& seconds) {
  fmt::print("    {:10}", what);
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    fmt::print(" {} {:.1f}", name_of(static_cast<Phase>(phase)), 1e3 * seconds[phase]);
  fmt::print(" ms\n");
}

// Counts pairs of methods whose measured times differ, and how many of them are predicted in the measured
// order. Pairs with the same plan are counted apart, since their difference is timing noise.
struct Order {
  int pairs = 0, right = 0, of_same_plan = 0;

  void add(std::span<const Prediction> methods) {
    for (const Prediction& slow : methods)
      for (const Prediction& fast : methods) {
        if (slow.measured < kTie * fast.measured) continue;
        const bool same = slow.predicted == fast.predicted;
        of_same_plan += same;
        pairs += !same;
        right += slow.predicted > fast.predicted;
      }
  }
};

// The machine is calibrated again before each scenario, since other programs share it.
void judge_thread_ranks(const StudySetup& study, const std::string& filter, bool each) {
  const auto homes = LayerPlacement::contiguous(study.shape.num_experts, study.ranks);
  std::vector<Prediction> steps, speedups;
  Order order;
  for (const std::string& scenario : scenario_names(study, filter)) {
    const SimSetup setup = sim_setup(study, calibrate(study.shape, study.ranks).machine);
    const Figures figures =
        measure_scenarios(study, scenario, [](const std::string&) { return RoundProgress{}; })
            .rows.front()
            .figures;
    const LayerTokens tokens = tokens_of(scenario_batch(study, scenario), study.shape.num_experts);
    std::array<Prediction, std::size(kMethods)> methods;
    for (std::size_t i = 0; i < methods.size(); ++i) {
      LayerReplay replay(setup, parse_method(kMethods[i]), {homes});
      const PhaseSeconds predicted = published::critical_path(replay.run(0, tokens, true).spans, study.ranks);
      const CandidateFigures& measured = i == 0 ? figures.reference : figures.candidates[i - 1];
      methods[i] = {fmt::format("{}, {}, ms", scenario, kMethods[i]), measured.critical_ms,
                    1e3 * published::sum(predicted)};
      const Prediction& ep = methods.front();
      if (i > 0)
        speedups.push_back({fmt::format("{}, {} over ep", scenario, kMethods[i]), measured.speedup,
                            ep.predicted / methods[i].predicted});
      if (!each) continue;
      fmt::print("  {:36} {:7.1f}, predicted {:7.1f} ({:+5.1f} %)\n", methods[i].what, methods[i].measured,
                 methods[i].predicted, 100 * (methods[i].predicted / methods[i].measured - 1));
      PhaseSeconds seconds = measured.phases_ms;
      for (double& phase : seconds) phase *= 1e-3;
      print_phases("measured", seconds);
      print_phases("predicted", predicted);
    }
    steps.insert(steps.end(), methods.begin(), methods.end());
    order.add(methods);
  }
  print("steps in ms", steps, false);
  print("speed-ups over ep", speedups, each);
  fmt::print(
      "order right in {} of {} pairs that differ by {:.0f} %; {} more pairs differ despite the same plan\n",
      order.right, order.pairs, 100 * (kTie - 1), order.of_same_plan);
}

}  // namespace

int main(int argc, char** argv) {
  StudySetup study{.shape = {128, 4, {768, 768}}, .tokens = 512, .pairs = 3, .planners = {}, .budget = {}};
  for (const Kind kind : {Kind::least_loaded, Kind::level}) study.planners.emplace_back().kind = kind;
  std::string filter;
  bool each = false, elsewhere = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (option == "--published") elsewhere = true;
    if (option == "--phases") each = true;
    if (option == "--backward") study.backward = true;
    if (option == "--filter") filter = value();
    if (option == "--tokens") study.tokens = std::atoi(value());
    if (option == "--pairs") study.pairs = std::atoi(value());
  }
  if (elsewhere) {
    print("Thread ranks, speed-ups forward", published::cpu_speedups(false), each);
    print("Thread ranks, speed-ups with backward", published::cpu_speedups(true), each);
    print("H200, forward steps in ms", published::h200_steps(false), each);
    print("H200, level over ep", published::h200_steps(true), each);
    print("H200, in ms by the preset", published::h200_steps(false, published::Rates::preset), each);
    print("H200, level over ep by the preset", published::h200_steps(true, published::Rates::preset), each);
    print("TensorRT-LLM, with copies over without", published::copies_over_none(/*draws=*/9), each);
    print("SGLang, skewed over even", published::skewed_over_even(/*draws=*/9), each);
    print("PyTorch, 2 processes: level over stock", published::torch_speedups(), each);
    print("PyTorch, 4 processes: speed over a slow link", published::shaped_link_speedups(), each);
    print("LLEP's paper", published::llep_headlines(), true);
    print("MemFine's paper", published::memfine_headlines(), true);
    return 0;
  }
  for (PlannerOptions& planner : study.planners)
    planner.min_segment = std::max<std::int64_t>(study.tokens / 2, 1);
  judge_thread_ranks(study, filter, each);
}
