#include "evenkeel/sim/internal/break_even.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/sim/gathered_layer.h"

namespace evenkeel::internal {

namespace {

constexpr int kSamples = 4;                      // steps and layers
constexpr double kFewest = 16, kMost = 1 << 24;  // tokens of a step, over all ranks
constexpr int kHalvings = 4;
constexpr double kFaster = 0.99;

// Rounded up: 34,220 is 35,000.
double two_digits(double value) {
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(value)) - 1));
  return std::ceil(value / unit) * unit;
}

struct Sample {
  int layer = 0;
  std::vector<std::int64_t> loads;  // [E]
  double total = 0;
};

std::vector<Sample> samples_of(StepSource& steps, int first_step) {
  const int count = steps.num_steps() - first_step;
  std::vector<Sample> samples;
  LayerTokens tokens;
  for (int i = 0; i < kSamples; ++i) {
    const int layer = (2 * i + 1) * steps.num_layers() / (2 * kSamples);
    steps.open(first_step + (2 * i + 1) * count / (2 * kSamples));
    steps.read(layer, 0, tokens);
    const auto loads = tokens.counts.loads();
    samples.push_back({layer, {loads.begin(), loads.end()}, static_cast<double>(tokens.counts.total())});
  }
  std::erase_if(samples, [](const Sample& each) { return each.total == 0; });
  return samples;
}

// So many assignments in the sample's shares, what rounding leaves to the first experts, from all ranks
// alike.
void scale(const Sample& sample, std::int64_t assignments, int ranks, int top_k, LayerTokens& tokens) {
  const std::size_t experts = sample.loads.size();
  tokens.top_k = top_k;
  tokens.experts.clear();
  tokens.counts.resize(ranks, static_cast<int>(experts));
  const auto rows = tokens.counts.rows();
  double before = 0;
  std::int64_t given = 0;
  std::size_t next = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    before += static_cast<double>(sample.loads[e]);
    const auto end = std::llround(before / sample.total * static_cast<double>(assignments));
    const std::int64_t load = end - given, each = load / ranks;
    given = end;
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) rows[r * experts + e] = each;
    for (std::int64_t left = load % ranks; left > 0;
         --left, next = (next + 1) % static_cast<std::size_t>(ranks))
      ++rows[next * experts + e];
  }
  tokens.counts.sum_loads();
  tokens.first_token.assign(1, 0);
  for (RankId rank : indices<RankId>(ranks)) {
    const auto row = tokens.counts.row(rank);
    const std::int64_t sum = std::reduce(row.begin(), row.end());
    tokens.first_token.push_back(tokens.first_token.back() + (sum + top_k - 1) / top_k);
  }
}

// Seconds of the samples' layers under a method, at so many tokens a step of one group.
class SizedSteps {
 public:
  SizedSteps(const SimSetup& setup, const Method& method, std::vector<LayerPlacement> homes,
             std::span<const Sample> samples, int top_k)
      : setup_(setup), method_(method), homes_(std::move(homes)), samples_(samples), top_k_(top_k) {
    setup_.budget.reset();
    method_.memory = Method::Memory::unlimited;
  }

  double seconds(double tokens_per_step) {
    const auto assignments = std::llround(tokens_per_step * top_k_);
    if (method_.fsdp) {
      GatheredLayer layer(setup_);
      return sum(assignments,
                 [&](const Sample&, const LayerTokens& tokens) { return layer.run(tokens).seconds; });
    }
    LayerReplay replay(setup_, method_, homes_);
    return sum(assignments, [&](const Sample& sample, const LayerTokens& tokens) {
      if (method_.step == Method::Step::slots)
        replay.run(sample.layer, tokens);  // what stays is there already
      return replay.run(sample.layer, tokens).seconds;
    });
  }

 private:
  template <class Run>
  double sum(std::int64_t assignments, const Run& run) {
    double seconds = 0;
    for (const Sample& sample : samples_) {
      scale(sample, assignments, setup_.topology.num_ranks(), top_k_, tokens_);
      seconds += run(sample, tokens_);
    }
    return seconds;
  }

  SimSetup setup_;
  Method method_;
  std::vector<LayerPlacement> homes_;
  std::span<const Sample> samples_;
  int top_k_;
  LayerTokens tokens_;
};

}  // namespace

std::vector<std::optional<double>> break_even_tokens(StepSource& steps, const GroupShape& shape,
                                                     const SimSetup& setup, const CompareOptions& options,
                                                     std::span<const std::vector<LayerPlacement>> homes) {
  const std::vector<Sample> samples = samples_of(steps, options.first_judged);
  const int top_k = steps.top_k().value_or(1);
  SizedSteps plain(setup, parse_method("ep"), homes.front(), samples, top_k);
  std::vector<std::optional<double>> all(options.methods.size());
  for (std::size_t m = 1; m < options.methods.size(); ++m) {
    SizedSteps method(setup, options.methods[m], homes[m], samples, top_k);
    const auto pays = [&](double tokens) { return method.seconds(tokens) < kFaster * plain.seconds(tokens); };
    double low = kMost;
    while (low >= kFewest && pays(low)) low /= 2;
    if (low == kMost) continue;
    double high = 2 * low;
    if (low >= kFewest)
      for (int i = 0; i < kHalvings; ++i) {
        const double middle = std::sqrt(low * high);
        (pays(middle) ? high : low) = middle;
      }
    all[m] = two_digits(high * shape.groups);
  }
  return all;
}

}  // namespace evenkeel::internal
