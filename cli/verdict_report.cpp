#include "cli/verdict_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/output.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(std::optional<double> value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.2f} TB", bytes / 1e12);
  return bytes >= 1e9 ? fmt::format("{:.2f} GB", bytes / 1e9) : fmt::format("{:.1f} MB", bytes / 1e6);
}

}  // namespace

bool any_steps(std::span<const RecordingJudgement> judgements) {
  return std::ranges::any_of(judgements,
                             [](const RecordingJudgement& judged) { return judged.steps.has_value(); });
}

Json json_of(const VerdictReport& report) {
  const Verdict& verdict = report.verdict;
  return {{"placement", report.placement},
          {"against", report.against},
          {"answer", name_of(verdict.answer)},
          {"sentence", verdict.sentence},
          {"max_over_mean_before", verdict.max_over_mean_before},
          {"max_over_mean_after", verdict.max_over_mean_after},
          {"better_on", verdict.better_on},
          {"recordings", verdict.recordings},
          {"step_ms_before", json_of(verdict.step_ms_before)},
          {"step_ms_after", json_of(verdict.step_ms_after)},
          {"moved_experts", verdict.move.experts},
          {"moved_bytes", json_of(verdict.move.bytes)},
          {"move_ms", json_of(verdict.move.ms)},
          {"break_even_steps", json_of(verdict.break_even_steps)},
          {"notes", verdict.notes}};
}

void print_verdict(const VerdictReport& report) {
  const Verdict& verdict = report.verdict;
  put("  {} against {}: {}\n", report.placement, report.against, verdict.sentence);
  put("  max/mean load, mean over recordings{}: {:.3f} -> {:.3f}; lower on {} of {}\n",
      report.of_steps ? ", of steps where they have them" : "", verdict.max_over_mean_before,
      verdict.max_over_mean_after, verdict.better_on, verdict.recordings);
  if (verdict.step_ms_before)
    put("  MoE layers of a step, by the model: {:.3f} ms -> {:.3f} ms\n", *verdict.step_ms_before,
        *verdict.step_ms_after);
  put("  to move: {} expert{}, at most {} to one rank{}{}\n", verdict.move.experts,
      verdict.move.experts == 1 ? "" : "s", verdict.move.most_on_rank,
      verdict.move.bytes ? fmt::format(", {} in all", bytes_text(*verdict.move.bytes)) : "",
      verdict.move.ms ? fmt::format(", {:.2f} ms", *verdict.move.ms) : "");
  if (verdict.step_ms_before)
    put("  the model: the heaviest rank's arithmetic, layer after layer; waiting for weights and sending "
        "left out\n");
  else
    put("  what a step takes: --model, --tokens-per-step, and --tflops, --device or --cost say it\n");
  if (!verdict.move.ms)
    put("  what the move takes: --model, and --link, --topology, --device or --cost say it\n");
}

}  // namespace evenkeel::cli
