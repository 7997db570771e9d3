// How often `evenkeel evaluate` and `evenkeel place` report noise as a gain, and how often they report a gain
// that exists.
//
// Noise     all experts are equally popular over all sequences, so no placement can gain anything. 1,400 runs
//           of 100 to 1,000,000 tokens, half of them on the placement's own recording, half on a fresh one.
//           Wanted: "pays" in at most 28.
// Gain      contiguous homes have max/mean 1.11; 100,000 tokens; sequences with equal or with individual
//           popularity. Wanted for equal ones: "pays" in 190 of 200, up to 32 ranks or from 4 layers on.
//
// usage: build/release/bin/verdict_rates        (minutes on one core)
#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <tuple>

#include "tests/placement/evaluate/verdict_runs.h"

namespace {

using namespace evenkeel;
using namespace evenkeel::verdict_runs;

constexpr double kConcentration = 1;  // Dirichlet concentration of a sequence's own popularity

struct PaysCount {
  int on_own = 0;
  int on_fresh = 0;
};

PaysCount count_pays(const Truth& truth, std::int64_t tokens, int runs) {
  PaysCount count;
  for (int run = 0; run < runs; ++run) {
    const auto seed = static_cast<std::uint64_t>(run) * 2;
    const Recording one = draw(truth, tokens, seed), other = draw(truth, tokens, seed + 1);
    count.on_own += verdict_on_own(truth, one).answer == Verdict::Answer::pays;
    count.on_fresh += verdict_on_fresh(truth, one, other).answer == Verdict::Answer::pays;
  }
  return count;
}

void print(const Truth& truth, std::int64_t tokens, int runs, const PaysCount& count) {
  fmt::print(
      "{:3} ranks {:3} experts {:2} layers {:7} tokens{}: pays on its own {:3} of {}, on fresh {:3} of {}\n",
      truth.ranks, truth.experts, truth.layers, tokens, truth.concentration < 1e9 ? "" : ", tokens alike",
      count.on_own, runs, count.on_fresh, runs);
  std::fflush(stdout);
}

void measure_noise() {
  constexpr int runs = 70;
  PaysCount all;
  for (const int layers : {1, 12})
    for (const std::int64_t tokens : {100, 1'000, 10'000, 100'000, 1'000'000}) {
      const Truth truth{.layers = layers, .concentration = kConcentration};
      const PaysCount count = count_pays(truth, tokens, runs);
      print(truth, tokens, runs, count);
      all.on_own += count.on_own;
      all.on_fresh += count.on_fresh;
    }
  fmt::print("noise: pays in {} of 1400, {} on its own recording and {} on fresh ones\n\n",
             all.on_own + all.on_fresh, all.on_own, all.on_fresh);
}

void measure_gain() {
  constexpr int runs = 200;
  for (const double concentration : {kConcentration, std::numeric_limits<double>::infinity()})
    for (const auto& [ranks, experts, layers] :
         {std::tuple(8, 64, 1), {32, 128, 1}, {8, 64, 4}, {64, 256, 4}, {64, 256, 1}}) {
      const Truth truth{.ranks = ranks,
                        .experts = experts,
                        .layers = layers,
                        .max_over_mean = 1 / 0.9,
                        .concentration = concentration};
      print(truth, 100'000, runs, count_pays(truth, 100'000, runs));
    }
}

}  // namespace

int main() {
  measure_noise();
  measure_gain();
}
