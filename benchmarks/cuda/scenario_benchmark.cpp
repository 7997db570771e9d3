// LLEP's scenarios at its models' shapes, on one GPU. The ranks' work runs in turn and is timed by events. A
// step takes as long as its slowest rank, with the bytes it sends and receives over a link of *modelled*
// speed. Covers the forward pass; level also runs in a tenth of plain ep's bytes. OUT.json also has the
// figures that LLEP's authors published (arXiv 2601.17111).
//
// usage: scenario_cuda_benchmark OUT.json [MODEL...]
#include <fmt/format.h>

#include <fstream>
#include <iostream>

#include "benchmarks/cuda/ranks_in_turn.h"
#include "evenkeel/base/error.h"
#include "evenkeel/device/cuda/gpu.h"

namespace evenkeel::benchmark {
namespace {

constexpr int kRepeats = 3;
// Bytes a second in each direction; the table uses the first speed.
constexpr double kLinks[] = {450e9, 225e9, 900e9};

std::vector<ModelCase> models() {
  const ExpertShape gpt_oss{2880, 2880, Activation::clamped_swiglu, true, DataType::bf16};
  const ExpertShape deepseek{7168, 2048, Activation::swiglu, false, DataType::bf16};
  return {{"gpt-oss-120b", {128, 4, gpt_oss}, 8, 32768},
          {"DeepSeek-V3", {256, 8, deepseek}, 8, 16384},
          {"Kimi-K2", {384, 8, deepseek}, 8, 16384}};
}

struct Scenario {
  double share;
  int hot;  // 0 means even routing
};
constexpr Scenario kScenarios[] = {{0, 0},   {0.3, 1},  {0.5, 1},  {0.8, 1},  {0.95, 1}, {0.3, 4},  {0.5, 4},
                                   {0.8, 4}, {0.95, 4}, {0.3, 16}, {0.5, 16}, {0.8, 16}, {0.95, 16}};

double step_milliseconds(const std::vector<RankTimes>& ranks, double row_bytes, double weight_bytes,
                         double link) {
  double slowest = 0;
  for (const RankTimes& r : ranks) {
    const double bytes = row_bytes * static_cast<double>(std::max(r.rows_in, r.rows_out) +
                                                         std::max(r.results_in, r.results_out)) +
                         weight_bytes * static_cast<double>(std::max(r.weights_in, r.weights_out));
    slowest = std::max(slowest, r.alone() + 1e3 * bytes / link);
  }
  return slowest;
}

Json json_of(const RankTimes& r) {
  return {{"plan_ms", r.plan},          {"tables_ms", r.tables},
          {"gather_ms", r.gather},      {"experts_ms", r.experts},
          {"combine_ms", r.combine},    {"positions", r.positions},
          {"rows_in", r.rows_in},       {"rows_out", r.rows_out},
          {"results_in", r.results_in}, {"results_out", r.results_out},
          {"weights_in", r.weights_in}, {"weights_out", r.weights_out},
          {"bytes", r.bytes},           {"chunks", r.chunks}};
}

struct Step {
  std::vector<double> milliseconds;  // one for each of kLinks
  std::int64_t peak_bytes = 0;
  std::int64_t largest = 0, all = 0;  // positions of the fullest rank, and of all ranks
  Json ranks = Json::array();
};

Step step_of(const RanksInTurn& turn, const std::vector<RankTimes>& ranks) {
  Step step;
  const double row = 2.0 * static_cast<double>(turn.model().moe.expert.hidden);
  const double weights = 2.0 * static_cast<double>(turn.layout().block());
  for (double link : kLinks) step.milliseconds.push_back(step_milliseconds(ranks, row, weights, link));
  for (const RankTimes& r : ranks) {
    step.peak_bytes = std::max(step.peak_bytes, r.bytes);
    step.largest = std::max(step.largest, r.positions);
    step.all += r.positions;
    step.ranks.push_back(json_of(r));
  }
  return step;
}

Json compare(RanksInTurn& turn, const Scenario& scenario) {
  std::mt19937_64 random(7);
  std::vector<std::vector<std::int32_t>> ids;
  for (int r = 0; r < turn.model().ranks; ++r)
    ids.push_back(concentrated_ids(random, turn.model(), scenario.share, scenario.hot));
  using Kind = PlannerOptions::Kind;
  const auto run = [&](Kind kind, std::int64_t budget = kNoBudget) {
    return step_of(turn, turn.run(ids, {kind}, kRepeats, budget));
  };
  const Step plain = run(Kind::ep);
  const double ideal =
      static_cast<double>(plain.largest) * turn.model().ranks / static_cast<double>(plain.all);
  Json json = {{"share", scenario.share}, {"hot", scenario.hot}, {"ideal", ideal}};
  const auto add = [&](const char* name, const Step& step) {
    Json& entry = json[name] = {{"peak_bytes", step.peak_bytes}, {"ranks", step.ranks}};
    for (std::size_t i = 0; i < std::size(kLinks); ++i) {
      const double speedup = plain.milliseconds[i] / step.milliseconds[i];
      entry["at_" + std::to_string(static_cast<int>(kLinks[i] / 1e9)) + "_GBps"] = {
          {"step_ms", step.milliseconds[i]}, {"speedup", speedup}, {"share_of_ideal", speedup / ideal}};
    }
    entry["bytes_of_ep"] = static_cast<double>(step.peak_bytes) / static_cast<double>(plain.peak_bytes);
    std::cout << fmt::format(
        "  {:4.0f} % into {:2} {:15} {:9.3f} ms, {:5.2f} x, {:5.1f} % of ideal, {:5.1f} GB\n",
        100 * scenario.share, scenario.hot, name, step.milliseconds[0],
        plain.milliseconds[0] / step.milliseconds[0],
        100 * plain.milliseconds[0] / step.milliseconds[0] / ideal,
        static_cast<double>(step.peak_bytes) / 1e9);
  };
  add("ep", plain);
  add("ep_again", run(Kind::ep));  // shows how much two identical runs differ
  add("least-loaded", run(Kind::least_loaded));
  add("level", run(Kind::level));
  try {
    add("level in a tenth", run(Kind::level, plain.peak_bytes / 10));
  } catch (const BudgetTooSmall& error) {
    json["level in a tenth"] = {{"error", error.what()}};
    std::cout << "  level in a tenth of plain ep's bytes: " << error.what() << "\n";
  }
  return json;
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: scenario_cuda_benchmark OUT.json [MODEL...]\n";
    return 2;
  }
  if (cuda::gpu_count() == 0) {
    std::cerr << cuda::why_no_gpu() << "\n";
    return 3;
  }
  const std::vector<std::string> wanted(argv + 2, argv + argc);
  Json all = {{"link", "modelled: bytes / speed, the larger of both directions, nothing hidden behind work"},
              {"paper",
               {{"source", "LLEP, arXiv 2601.17111, 95 % into one expert, eight H200"},
                {"most_speedup", 6.11},
                {"least_bytes_of_ep", 0.2}}}};
  for (const ModelCase& model : models()) {
    if (!wanted.empty() && std::ranges::find(wanted, model.name) == wanted.end()) continue;
    std::cout << model.name << "\n";
    CudaStream stream;
    RanksInTurn turn(model, stream);
    for (const Scenario& scenario : kScenarios) all[model.name].push_back(compare(turn, scenario));
    std::ofstream(argv[1]) << all.dump(1) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace evenkeel::benchmark

int main(int argc, char** argv) {
  try {
    return evenkeel::benchmark::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
