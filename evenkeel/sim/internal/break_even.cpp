#include "evenkeel/sim/internal/break_even.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/sim/gathered_layer.h"

namespace evenkeel::internal {

namespace {

constexpr int kSamples = 4;                      // number of samples; each is one layer in one step
constexpr double kFewest = 16, kMost = 1 << 24;  // tokens per step, over all ranks
constexpr int kHalvings = 4;
constexpr double kFaster = 0.99;

// Rounds up to two digits: 34,220 becomes 35,000.
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

// A recording of one step with `assignments` assignments, distributed as in the sample.
Recording scaled(const Sample& sample, std::int64_t assignments) {
  std::vector<std::int64_t> loads;
  double before = 0;
  std::int64_t given = 0;
  for (const std::int64_t load : sample.loads) {
    before += static_cast<double>(load);
    const auto end = std::llround(before / sample.total * static_cast<double>(assignments));
    loads.push_back(end - given);
    given = end;
  }
  const auto experts = static_cast<int>(loads.size());
  return {.name = "scaled", .profile = RoutingProfile(1, experts, std::move(loads), {})};
}

// Predicts the seconds of the samples' layers under a method, for a given number of tokens in a step of one
// group.
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
        // the first run fills the slots, so that the next run finds them filled
        replay.run(sample.layer, tokens);
      return replay.run(sample.layer, tokens).seconds;
    });
  }

 private:
  template <class Run>
  double sum(std::int64_t assignments, const Run& run) {
    double seconds = 0;
    for (const Sample& sample : samples_) {
      const Recording recording = scaled(sample, assignments);
      const auto step =
          steps_of(std::span(&recording, 1), {setup_.topology.num_ranks(), 1}, {.top_k = top_k_});
      step->open(0);
      step->read(0, 0, tokens_);
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
