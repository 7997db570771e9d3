#include "evenkeel/sim/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <ranges>

#include "evenkeel/base/bytes.h"
#include "evenkeel/placement/evaluate/blocks.h"

namespace evenkeel {

namespace {

using Answer = MethodSummary::Answer;

constexpr int kBlocks = Recording::num_blocks;
constexpr double kChance = 0.005;

std::string size_text(double bytes) {
  return format_bytes(std::llround(bytes));
}

template <class Field>
std::vector<double> values_of(const MethodResult& method, Field field) {
  std::vector<double> values;
  for (const StepFigures& step : method.steps)
    values.push_back(static_cast<double>(std::invoke(field, step)));
  return values;
}

template <class Field>
double field_mean(const MethodResult& method, Field field) {
  return mean_of(values_of(method, field));
}

// The mean of each of kBlocks blocks of consecutive steps.
std::vector<double> block_means(const std::vector<double>& values) {
  std::vector<double> means;
  for (std::size_t block = 0; block < kBlocks; ++block) {
    const std::size_t begin = block * values.size() / kBlocks, end = (block + 1) * values.size() / kBlocks;
    means.push_back(mean_of(std::span(values).subspan(begin, end - begin)));
  }
  return means;
}

RankPair worst_pair_of(const Comparison& comparison, const MethodResult& method) {
  const auto ranks = static_cast<std::size_t>(comparison.shape.ranks);
  RankPair worst;
  for (std::size_t group = 0; group < method.pair_bytes.size(); ++group) {
    const std::vector<double>& bytes = method.pair_bytes[group];
    const auto most = static_cast<std::size_t>(std::ranges::max_element(bytes) - bytes.begin());
    if (const double mean = bytes[most] / comparison.num_steps; mean > worst.bytes)
      worst = {static_cast<int>(group * ranks + most / ranks), static_cast<int>(group * ranks + most % ranks),
               mean};
  }
  return worst;
}

// The values compared, one for each step: seconds, or max/mean if seconds are not known. The time of moving
// experts is not random. It is spread evenly over all steps, so that it does not widen the bounds.
std::vector<double> compared(const Comparison& comparison, const MethodResult& method) {
  if (!comparison.has_seconds) return values_of(method, &StepFigures::max_over_mean);
  std::vector<double> seconds = values_of(method, &StepFigures::seconds);
  const std::vector<double> moving = values_of(method, &StepFigures::moving_seconds);
  const double each = mean_of(moving);
  for (std::size_t step = 0; step < seconds.size(); ++step) seconds[step] += each - moving[step];
  return seconds;
}

class Judge {
 public:
  Judge(const Comparison& comparison, std::optional<std::int64_t> budget)
      : comparison_(comparison), budget_(budget), plain_(comparison.methods.front()) {}

  MethodSummary of(const MethodResult& method) const {
    MethodSummary sum = figures_of(method);
    if (&method == &plain_)
      sum.sentence = fmt::format(
          "in a median step the fullest rank computes {:.2f}x the mean{}", sum.max_over_mean.median,
          sum.steps_over_budget.value_or(0) > 0
              ? fmt::format("; {} of {} steps do not fit", *sum.steps_over_budget, comparison_.num_steps)
              : "");
    else
      judge(method, sum);
    return sum;
  }

 private:
  MethodSummary figures_of(const MethodResult& method) const;
  void judge(const MethodResult& method, MethodSummary& sum) const;
  void judge_gain(const Gain& gain, const std::string& figure, MethodSummary& sum) const;
  int over_budget(const MethodResult& method) const;
  std::string cost_of(const MethodSummary& sum) const;
  std::string from_tokens(const MethodSummary& sum) const;

  const Comparison& comparison_;
  std::optional<std::int64_t> budget_;
  const MethodResult& plain_;
};

MethodSummary Judge::figures_of(const MethodResult& method) const {
  MethodSummary sum;
  sum.max_over_mean = spread_of(values_of(method, &StepFigures::max_over_mean));
  const double ideal = mean_of(values_of(plain_, &StepFigures::max_over_mean));
  if (comparison_.has_seconds) {
    sum.seconds = spread_of(values_of(method, &StepFigures::seconds));
    if (sum.seconds->mean > 0)
      sum.speedup = mean_of(values_of(plain_, &StepFigures::seconds)) / sum.seconds->mean;
    for (const StepFigures& step : method.steps)
      for (std::size_t phase = 0; phase < kSimPhases; ++phase)
        sum.parts[phase] += step.parts[phase] / static_cast<double>(method.steps.size());
  } else {
    sum.speedup = ideal / sum.max_over_mean.mean;
  }
  if (sum.speedup) sum.share_of_ideal = *sum.speedup / ideal;
  sum.transfers = field_mean(method, &StepFigures::transfers);
  sum.moved_bytes = field_mean(method, &StepFigures::moved_bytes);
  sum.recomputed = field_mean(method, &StepFigures::recomputed);
  sum.most_chunks = std::ranges::max(method.steps, {}, &StepFigures::chunks).chunks;
  sum.break_even_tokens = method.break_even_tokens;
  if (!comparison_.has_bytes) return sum;
  sum.copy_bytes = method.copy_bytes;
  sum.rows = field_mean(method, &StepFigures::rows);
  sum.bytes_within = field_mean(method, &StepFigures::bytes_within);
  sum.bytes_across = field_mean(method, &StepFigures::bytes_across);
  sum.weight_bytes = field_mean(method, &StepFigures::weight_bytes);
  sum.worst_pair = worst_pair_of(comparison_, method);
  sum.peak_bytes = std::ranges::max(method.steps, {}, &StepFigures::peak_bytes).peak_bytes;
  if (budget_) sum.steps_over_budget = over_budget(method);
  return sum;
}

void Judge::judge(const MethodResult& method, MethodSummary& sum) const {
  const std::vector<double> before = compared(comparison_, plain_), after = compared(comparison_, method);
  const std::string figure =
      fmt::format(fmt::runtime(comparison_.has_seconds ? "steps take {:.3g}x plain EP's time"
                                                       : "max/mean is {:.3g}x plain EP's"),
                  mean_of(after) / mean_of(before));
  const int units = std::min(comparison_.num_steps, comparison_.independent_parts);
  const int misfits_before = over_budget(plain_), misfits = over_budget(method);
  if (misfits > 0 || misfits_before > 0) {
    // A step that does not fit cannot run, so fitting decides the answer.
    sum.answer = misfits > 0 ? Answer::does_not_pay : Answer::pays;
    sum.sentence = fmt::format("{} of {} steps do not fit (plain EP: {}); {}{}", misfits,
                               comparison_.num_steps, misfits_before, figure, cost_of(sum));
  } else if (before == after) {
    sum.answer = Answer::does_not_pay;
    sum.sentence = "changes nothing here" + from_tokens(sum);
  } else if (units < kBlocks) {
    sum.answer = Answer::not_enough_data;
    sum.sentence =
        fmt::format("{}, but {} independent steps are needed to tell it from chance, and there {} {}", figure,
                    kBlocks, units == 1 ? "is" : "are", units);
  } else {
    judge_gain(gain_of(block_means(before), block_means(after), kChance), figure, sum);
  }
}

void Judge::judge_gain(const Gain& gain, const std::string& figure, MethodSummary& sum) const {
  const std::string span =
      fmt::format("{} ({:.3g} to {:.3g})", figure, std::max(0.0, 1 - gain.high() / gain.before),
                  1 - gain.low() / gain.before);
  if (gain.low() <= 0 && gain.high() >= 0) {
    sum.answer = Answer::not_enough_data;
    sum.sentence = span + ", too wide to tell on which side of 1 it is" + cost_of(sum);
    return;
  }
  sum.answer = gain.low() > 0 ? Answer::pays : Answer::does_not_pay;
  sum.sentence = span + cost_of(sum) + from_tokens(sum);
}

std::string Judge::from_tokens(const MethodSummary& sum) const {
  // The break-even is predicted from a few layers, so it may contradict the verdict over all layers.
  const bool pays = sum.answer == Answer::pays;
  if (!sum.break_even_tokens || pays != (*sum.break_even_tokens <= comparison_.tokens_per_step)) return "";
  return fmt::format("; it {} from about {} tokens a step on", pays ? "pays" : "would pay",
                     std::llround(*sum.break_even_tokens));
}

int Judge::over_budget(const MethodResult& method) const {
  if (!budget_ || !comparison_.has_bytes) return 0;
  return static_cast<int>(std::ranges::count_if(
      method.steps, [&](const StepFigures& step) { return step.peak_bytes > *budget_; }));
}

std::string Judge::cost_of(const MethodSummary& sum) const {
  std::string cost;
  if (sum.transfers > 0) cost += fmt::format(", for {:.3g} weight transfers a step", sum.transfers);
  if (sum.weight_bytes.value_or(0) > 0)
    cost += fmt::format(", {} of weights{} a step", size_text(*sum.weight_bytes),
                        comparison_.backward ? " and gradients" : "");
  if (sum.moved_bytes > 0)
    cost += fmt::format(", and {} a step for experts that move to new homes", size_text(sum.moved_bytes));
  if (sum.copy_bytes.value_or(0) > 0)
    cost += fmt::format(", with {} of copies on a rank (not in its peak)", size_text(*sum.copy_bytes));
  if (sum.recomputed > 0) cost += fmt::format(", with {:.0f} % computed twice", 100 * sum.recomputed);
  return cost;
}

}  // namespace

const char* name_of(Answer answer) {
  constexpr std::array<const char*, 4> names = {"is_reference", "pays", "does_not_pay", "not_enough_data"};
  return names[static_cast<std::size_t>(answer)];
}

std::string text_of(Answer answer) {
  std::string text = name_of(answer);
  std::ranges::replace(text, '_', ' ');
  return text;
}

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {mean_of(values), quantile(values, 0.5), quantile(values, 0.95), quantile(values, 0.99),
          values.back()};
}

std::vector<MethodSummary> summaries_of(const Comparison& comparison, std::optional<std::int64_t> budget) {
  const Judge judge(comparison, budget);
  std::vector<MethodSummary> all;
  for (const MethodResult& method : comparison.methods) all.push_back(judge.of(method));
  return all;
}

}  // namespace evenkeel
