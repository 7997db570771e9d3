#include "evenkeel/placement/evaluate/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/evaluate/provenance.h"

namespace evenkeel {

namespace {

// The probability that one bound of the gain is wrong.
constexpr double kChance = 0.005;
// In one of twenty recordings the measured gain is at least this many standard errors below the true one.
constexpr double kUnlucky = 1.65;

std::string counted(double number, const char* what) {
  return fmt::format("{:.0f} {}{}", number, what, number == 1 ? "" : "s");
}

std::string time_text(double ms) {
  if (std::abs(ms) >= 1000) return fmt::format("{:.2f} s", ms / 1000);
  return std::abs(ms) >= 1 ? fmt::format("{:.2f} ms", ms) : fmt::format("{:.2f} us", ms * 1000);
}

// 54000 is "54,000".
std::string grouped(std::int64_t number) {
  return number < 1000 ? fmt::format("{}", number)
                       : fmt::format("{},{:03}", grouped(number / 1000), number % 1000);
}

std::int64_t rounded_up_to_two_digits(double number) {
  const double whole = std::min(std::ceil(number), 1e18);
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(std::max(whole, 1.0))) - 1));
  return static_cast<std::int64_t>(std::ceil(whole / unit) * unit);
}

// Sets answer, tokens needed and sentence of a verdict whose figures are already set.
class Decision {
 public:
  Decision(const Evidence& evidence, std::optional<double> ms_of_level, std::optional<double> horizon,
           Verdict& verdict)
      : evidence_(evidence), ms_of_level_(ms_of_level), horizon_(horizon), verdict_(verdict) {}

  void make() const {
    verdict_.answer = answer();
    if (verdict_.answer == Answer::not_enough_data)
      verdict_.tokens_needed = rounded_up_to_two_digits(tokens_needed());
    verdict_.sentence = sentence();
  }

 private:
  using Answer = Verdict::Answer;

  bool optimistic() const { return evidence_.measured_on == JudgedData::made_from && !evidence_.held_out; }
  bool moves() const { return verdict_.move.experts > 0; }
  bool break_even_known() const { return ms_of_level_ && verdict_.move.ms && horizon_; }
  // The gain at which the move pays for itself; 0 if that is not known or nothing moves.
  double break_even_gain() const {
    return moves() && break_even_known() ? *verdict_.move.ms / *horizon_ / *ms_of_level_ : 0;
  }
  // Upper bound of the gain, if there is one.
  std::optional<double> gain_upper_bound() const {
    if (evidence_.gain) return evidence_.gain->high();
    if (optimistic()) return verdict_.max_over_mean_before - verdict_.max_over_mean_after;
    return std::nullopt;
  }

  Answer answer() const {
    if (gain_upper_bound() && *gain_upper_bound() <= break_even_gain()) return Answer::does_not_pay;
    if (optimistic() || !evidence_.gain || evidence_.gain->low() <= break_even_gain())
      return Answer::not_enough_data;
    return break_even_known() || !moves() ? Answer::pays : Answer::depends;
  }

  // Enough tokens that 19 of 20 recordings show the gain on the right side of break-even. The true distance
  // from break-even is taken to be the measured one, but at least a standard error. Errors shrink with the
  // square root of the tokens.
  double tokens_needed() const {
    if (!evidence_.gain) return evidence_.tokens * evidence_.times_for_blocks;
    const Gain& gain = *evidence_.gain;
    const double far = std::max(std::abs(gain.mean - break_even_gain()), gain.standard_error);
    const double errors = far > 0 ? (gain.half_width + kUnlucky * gain.standard_error) / far : 0;
    return std::max(evidence_.tokens * errors * errors, evidence_.tokens * evidence_.times_for_blocks);
  }

  std::string sentence() const {
    switch (verdict_.answer) {
      case Answer::pays:
        return fmt::format("it pays: {}{}", moves() ? against_move() : "nothing has to move, and " + saved(),
                           verdict_.measured_on ? "" : ", if the placement was not made from this data");
      case Answer::does_not_pay:
        return fmt::format(
            "it does not pay: {}{}", gain_upper_bound() <= 0 || !moves() ? saved() : against_move(),
            optimistic() ? ", and that is optimistic: the placement was made from this data" : "");
      case Answer::depends:
        return fmt::format("it depends on {}: {}", unknowns(),
                           verdict_.break_even_steps
                               ? "it pays after " + counted(std::ceil(*verdict_.break_even_steps), "step")
                               : saved());
      case Answer::not_enough_data:
        return not_enough();
    }
    return {};
  }

  std::string not_enough() const {
    const std::string enough = fmt::format("about {} {}{} would be enough", grouped(*verdict_.tokens_needed),
                                           evidence_.are_tokens ? "tokens" : "assignments of a layer",
                                           optimistic() ? " of other traffic" : "");
    const std::string there = grouped(static_cast<std::int64_t>(evidence_.tokens));
    if (optimistic())
      return fmt::format(
          "not enough data: the placement was made from this data, so it is optimistic that {}; {}", saved(),
          enough);
    if (!evidence_.gain)
      return fmt::format("not enough data: {}, so the effect of chance is not known; {}, and there are {}",
                         evidence_.why_no_gain, enough, there);
    const std::string needed =
        moves() && break_even_known()
            ? fmt::format("the move needs {} of each step over {}",
                          time_text(break_even_gain() * *ms_of_level_), counted(*horizon_, "step"))
            : "which may be chance";
    return fmt::format("not enough data: {}, {}; {}, and there are {}", saved(), needed, enough, there);
  }

  // "6.80 ms a step are saved (5.90 ms to 7.70 ms)", or in max/mean where no time is known.
  std::string saved() const {
    const std::string held_out = evidence_.held_out && evidence_.gain ? "held out, " : "";
    const double mean = gain();
    const bool rises = mean < 0;
    const double sign = rises ? -1 : 1;
    std::string bounds;
    if (evidence_.gain) {
      const auto [low, high] = std::minmax({sign * evidence_.gain->low(), sign * evidence_.gain->high()});
      bounds = ms_of_level_ ? fmt::format(" ({} to {})", time_text(low * *ms_of_level_),
                                          time_text(high * *ms_of_level_))
                            : fmt::format(" ({:.3f} to {:.3f})", low, high);
    }
    if (!ms_of_level_)
      return fmt::format("{}max/mean {} by {:.3f}{}", held_out, rises ? "rises" : "falls", sign * mean,
                         bounds);
    return fmt::format("{}{} a step are {}{}", held_out, time_text(sign * mean * *ms_of_level_),
                       rises ? "lost" : "saved", bounds);
  }

  std::string against_move() const {
    const std::string after =
        verdict_.break_even_steps
            ? ", so it pays after " + counted(std::ceil(*verdict_.break_even_steps), "step")
            : "";
    return fmt::format("{}, the move takes {}{}, and the horizon is {}", saved(),
                       time_text(*verdict_.move.ms), after, counted(*horizon_, "step"));
  }

  std::string unknowns() const {
    std::vector<std::string> unknown;
    if (!ms_of_level_) unknown.emplace_back("what a step takes");
    if (!verdict_.move.ms) unknown.emplace_back("what the move takes");
    if (!horizon_) unknown.emplace_back("how many steps it will serve");
    std::string text;
    for (std::size_t i = 0; i < unknown.size(); ++i)
      text += (i == 0 ? "" : i + 1 == unknown.size() ? " and " : ", ") + unknown[i];
    return text;
  }

  double gain() const {
    return evidence_.gain ? evidence_.gain->mean
                          : verdict_.max_over_mean_before - verdict_.max_over_mean_after;
  }

  const Evidence& evidence_;
  std::optional<double> ms_of_level_;
  std::optional<double> horizon_;
  Verdict& verdict_;
};

// Tokens of a recording: its assignments per layer (mean over layers) / top-k.
double tokens_of(const Recording& recording, const StepModel& model, bool& known) {
  const RoutingProfile& profile = recording.profile;
  double loads = 0;
  for (LayerId layer : indices<LayerId>(profile.num_layers()))
    loads += static_cast<double>(profile.total_load(layer));
  const std::optional<int> top_k = recording.trace ? recording.trace->info().top_k : model.top_k;
  known = known && top_k.has_value();
  return loads / profile.num_layers() / top_k.value_or(1);
}

std::optional<JudgedData> measured_on(std::span<const Recording> recordings,
                                      const NamedPlacement& placement) {
  if (placement.made_from.empty()) return std::nullopt;
  const bool own = std::ranges::any_of(recordings, [&](const Recording& each) {
    return std::ranges::find(placement.made_from, digest_of(each.profile)) != placement.made_from.end();
  });
  return own ? JudgedData::made_from : JudgedData::not_made_from;
}

bool are_equal(const Placement& one, const Placement& other) {
  for (int layer = 0; layer < one.num_layers(); ++layer)
    if (one.layer(layer) != other.layer(layer)) return false;
  return true;
}

double mean_level(std::span<const RecordingJudgement> judged) {
  double sum = 0;
  for (const RecordingJudgement& each : judged) sum += level_of(each);
  return sum / static_cast<double>(judged.size());
}

Evidence evidence_of(std::span<const Recording> recordings, const JudgedPlacement& before,
                     const JudgedPlacement& after, const StepModel& model, const VerdictOptions& options) {
  Evidence evidence{.measured_on = measured_on(recordings, after.placement), .held_out = options.held_out};
  for (const Recording& each : recordings) evidence.tokens += tokens_of(each, model, evidence.are_tokens);
  if (!after.blocks.empty())
    evidence.gain = gain_of(before.blocks, after.blocks, kChance / options.picked_from);
  else
    evidence.why_no_gain = why_no_blocks(recordings);
  evidence.times_for_blocks = times_to_have_blocks(recordings);
  return evidence;
}

}  // namespace

const char* name_of(JudgedData data) {
  return data == JudgedData::made_from ? "the data it was made from" : "data it was not made from";
}

const char* name_of(Verdict::Answer answer) {
  switch (answer) {
    case Verdict::Answer::pays:
      return "pays";
    case Verdict::Answer::does_not_pay:
      return "does not pay";
    case Verdict::Answer::depends:
      return "depends";
    case Verdict::Answer::not_enough_data:
      break;
  }
  return "not_enough_data";
}

Verdict verdict_of(std::span<const RecordingJudgement> before, std::span<const RecordingJudgement> after,
                   const Evidence& evidence, const Move& move, const StepModel& model, int num_layers,
                   int num_ranks, std::optional<double> horizon) {
  if (before.empty() || before.size() != after.size())
    throw InvalidArgument(
        "recordings", fmt::format("{} are judged before and {} after the move", before.size(), after.size()),
        "the same recordings before and after, one or more");
  Verdict verdict{.recordings = static_cast<int>(before.size()),
                  .move = move,
                  .gain = evidence.gain,
                  .measured_on = evidence.measured_on,
                  .notes = model.notes,
                  .model = model};
  const auto count = static_cast<double>(before.size());
  verdict.max_over_mean_before = verdict.max_over_mean_after = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    verdict.max_over_mean_before += level_of(before[i]) / count;
    verdict.max_over_mean_after += level_of(after[i]) / count;
    verdict.better_on += level_of(after[i]) < level_of(before[i]) ? 1 : 0;
    verdict.of_steps = verdict.of_steps || after[i].steps.has_value();
  }
  if (evidence.gain) {
    verdict.max_over_mean_before = evidence.gain->before;
    verdict.max_over_mean_after = evidence.gain->after;
  }
  const double gain =
      evidence.gain ? evidence.gain->mean : verdict.max_over_mean_before - verdict.max_over_mean_after;
  verdict.step_ms_before = step_ms(model, num_layers, num_ranks, verdict.max_over_mean_before);
  verdict.step_ms_after = step_ms(model, num_layers, num_ranks, verdict.max_over_mean_after);
  const std::optional<double> ms_of_level = step_ms(model, num_layers, num_ranks, 1);
  if (ms_of_level && move.ms && gain > 0) verdict.break_even_steps = *move.ms / (gain * *ms_of_level);
  Decision(evidence, ms_of_level, horizon, verdict).make();
  return verdict;
}

Verdict verdict_of(std::span<const Recording> recordings, const JudgedPlacement& before,
                   const JudgedPlacement& after, const StepModel& model, int num_ranks,
                   const VerdictOptions& options) {
  const Recording& whole = widest(recordings);
  const Placement was = before.placement.on(whole, num_ranks), is = after.placement.on(whole, num_ranks);
  const Move move = move_between(was, is, model);
  Evidence evidence = evidence_of(recordings, before, after, model, options);
  // Equal placements gain nothing, whatever the data.
  if (are_equal(was, is) && before.placement.dispatch == after.placement.dispatch)
    evidence.gain = Gain{.before = mean_level(before.on), .after = mean_level(before.on)};
  Verdict verdict = verdict_of(before.on, after.on, evidence, move, model, whole.profile.num_layers(),
                               num_ranks, options.horizon);
  verdict.placement = after.placement.name;
  verdict.against = before.placement.name;
  return verdict;
}

Evaluation evaluate(std::vector<Recording> recordings, std::vector<NamedPlacement> placements,
                    std::optional<NamedPlacement> from, const Topology& topology, const StepModel& model,
                    std::optional<double> horizon) {
  if (recordings.empty()) throw InvalidArgument("recordings", "is empty", "one or more");
  if (placements.empty()) throw InvalidArgument("placements", "is empty", "one or more");
  const int num_placements = static_cast<int>(placements.size());
  std::vector<JudgedPlacement> judged = {judge({}, recordings, topology)};
  for (NamedPlacement& each : placements) judged.push_back(judge(std::move(each), recordings, topology));
  JudgedPlacement against = from ? judge(*std::move(from), recordings, topology) : judged.front();
  Verdict verdict = verdict_of(recordings, against, most_level(std::span(judged).subspan(1)), model,
                               topology.num_ranks(), {.horizon = horizon, .picked_from = num_placements});
  return {.recordings = std::move(recordings),
          .placements = std::move(judged),
          .against = std::move(against),
          .num_ranks = topology.num_ranks(),
          .num_nodes = topology.num_nodes(),
          .verdict = std::move(verdict)};
}

}  // namespace evenkeel
