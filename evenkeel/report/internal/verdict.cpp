#include "evenkeel/report/internal/verdict.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "evenkeel/report/internal/html_page.h"
#include "evenkeel/report/internal/numbers.h"

namespace evenkeel::internal {

namespace {

std::string bytes_text(double bytes) {
  if (bytes >= 1e12) return fixed(bytes / 1e12, 2) + " TB";
  return bytes >= 1e9 ? fixed(bytes / 1e9, 2) + " GB" : fixed(bytes / 1e6, 1) + " MB";
}

// Options that would supply the missing inputs.
std::vector<std::string> missing_of_step(const StepModel& model) {
  std::vector<std::string> missing;
  if (!model.has_model) missing.emplace_back("--model");
  if (!model.assignments_per_step) missing.emplace_back("--tokens-per-step");
  if (!model.has_rate) missing.emplace_back("--tflops, --device or --cost");
  return missing;
}

std::vector<std::string> missing_of_move(const StepModel& model) {
  std::vector<std::string> missing;
  if (!model.has_model)
    missing.emplace_back("--model");
  else if (!model.expert_bytes)
    missing.emplace_back("--expert-bytes (the model's config has no dtype)");
  if (!model.link_gigabytes_per_s) missing.emplace_back("--link, --topology, --device or --cost");
  return missing;
}

// "--model, and --link, --topology, --device or --cost say it".
std::string said_by(const std::vector<std::string>& options) {
  const bool one = options.size() == 1 && options.front().find(',') == std::string::npos;
  return fmt::format("{} {} it", fmt::join(options, ", and "), one ? "says" : "say");
}

std::string mean_over(const Verdict& verdict) {
  if (verdict.gain) return fmt::format("{} blocks", Recording::num_blocks);
  return verdict.of_steps ? "recordings (over their steps, if known)" : "recordings";
}

Json json_of(const Gain& gain) {
  return {{"mean", gain.mean}, {"low", gain.low()}, {"high", gain.high()}, {"blocks", Recording::num_blocks}};
}

}  // namespace

Json json_of(const Verdict& verdict) {
  return {{"placement", verdict.placement},
          {"against", verdict.against},
          {"answer", name_of(verdict.answer)},
          {"sentence", verdict.sentence},
          {"max_over_mean_before", verdict.max_over_mean_before},
          {"max_over_mean_after", verdict.max_over_mean_after},
          {"better_on", verdict.better_on},
          {"recordings", verdict.recordings},
          {"step_ms_before", or_null(verdict.step_ms_before)},
          {"step_ms_after", or_null(verdict.step_ms_after)},
          {"moved_experts", verdict.move.experts},
          {"moved_bytes", or_null(verdict.move.bytes)},
          {"move_ms", or_null(verdict.move.ms)},
          {"break_even_steps", or_null(verdict.break_even_steps)},
          {"gain", verdict.gain ? json_of(*verdict.gain) : Json(nullptr)},
          {"tokens_needed", or_null(verdict.tokens_needed)},
          {"measured_on", verdict.measured_on ? Json(name_of(*verdict.measured_on)) : Json(nullptr)},
          {"notes", verdict.notes}};
}

void put_verdict(Page& page, const Verdict& verdict) {
  page.put("  {} against {}: {}\n", verdict.placement, verdict.against, verdict.sentence);
  if (verdict.measured_on) page.put("  measured on {}\n", name_of(*verdict.measured_on));
  page.put("  max/mean load, mean over {}: {:.3f} -> {:.3f}; lower on {} of {} recording{}\n",
           mean_over(verdict), verdict.max_over_mean_before, verdict.max_over_mean_after, verdict.better_on,
           verdict.recordings, verdict.recordings == 1 ? "" : "s");
  if (verdict.step_ms_before)
    page.put("  MoE layers of a step, by the model: {:.3f} ms -> {:.3f} ms\n", *verdict.step_ms_before,
             *verdict.step_ms_after);
  page.put("  to move: {} expert{}, at most {} to one rank{}{}\n", verdict.move.experts,
           verdict.move.experts == 1 ? "" : "s", verdict.move.most_on_rank,
           verdict.move.bytes ? fmt::format(", {} in all", bytes_text(*verdict.move.bytes)) : "",
           verdict.move.ms ? fmt::format(", {:.2f} ms", *verdict.move.ms) : "");
  if (verdict.step_ms_before)
    page.put(
        "  the model: the heaviest rank's arithmetic, layer after layer; waiting for weights and sending "
        "left out\n");
  else
    page.put("  what a step takes: {}\n", said_by(missing_of_step(verdict.model)));
  if (!verdict.move.ms) page.put("  what the move takes: {}\n", said_by(missing_of_move(verdict.model)));
}

Json verdict_section(const Verdict& verdict, const std::string& id, const std::string& title,
                     const Json& more) {
  const std::size_t colon = std::min(verdict.sentence.find(": "), verdict.sentence.size());
  Json sentences = Json::array({fmt::format("{} against {}: {}", verdict.placement, verdict.against,
                                            verdict.sentence.substr(0, colon))});
  if (colon < verdict.sentence.size()) sentences.push_back(verdict.sentence.substr(colon + 2));
  if (verdict.measured_on) sentences.push_back(fmt::format("measured on {}", name_of(*verdict.measured_on)));
  sentences.push_back(fmt::format("lower on {} of {} recording{}", verdict.better_on, verdict.recordings,
                                  verdict.recordings == 1 ? "" : "s"));
  Json tiles = Json::array({tile(fmt::format("max/mean load, mean over {}", mean_over(verdict)),
                                 verdict.max_over_mean_before, verdict.max_over_mean_after, "ratio")});
  tiles.insert(tiles.end(), more.begin(), more.end());
  if (verdict.step_ms_before)
    tiles.push_back(
        tile("MoE layers of a step, by the model", *verdict.step_ms_before, *verdict.step_ms_after, "ms"));
  const auto add = [&](const char* label, const Json& value, const char* unit) {
    if (!value.is_null()) tiles.push_back(tile(label, nullptr, value, unit));
  };
  add("experts that move", verdict.move.experts, "count");
  add("most of them to one rank", verdict.move.most_on_rank, "count");
  add("bytes that move", or_null(verdict.move.bytes), "bytes");
  add("the move takes", or_null(verdict.move.ms), "ms");
  if (verdict.break_even_steps)
    add("steps until the move has paid", std::ceil(*verdict.break_even_steps), "count");
  return {{"kind", "tiles"},
          {"id", id},
          {"title", title},
          {"verdict", std::move(sentences)},
          {"before", verdict.against},
          {"after", verdict.placement},
          {"tiles", std::move(tiles)}};
}

}  // namespace evenkeel::internal
