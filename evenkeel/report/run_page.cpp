// The page of `evenkeel run`.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "evenkeel/report/internal/figures.h"
#include "evenkeel/report/internal/html_page.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

namespace {

using internal::column;
using internal::Json;

// All measured candidates, with plain ep among them.
std::vector<const CandidateFigures*> with_reference(const Figures& figures) {
  std::vector<const CandidateFigures*> all;
  for (const CandidateFigures& of : figures.candidates) all.push_back(&of);
  if (std::ranges::none_of(all, [](const auto* of) { return of->candidate.is_plain(); }))
    all.insert(all.begin(), &figures.reference);
  return all;
}

// The last planner compared with ep, as in the text report.
Json summary_of(const RunReport& report) {
  const Figures& figures = report.checked.figures;
  const CandidateFigures& ep = figures.reference;
  const CandidateFigures& last = figures.candidates.back();
  const double ideal = figures.ideal_speedup();
  Json tiles = Json::array();
  const auto add = [&](const char* label, const Json& before, const Json& after, const char* unit) {
    tiles.push_back(internal::tile(label, before, after, unit));
  };
  add("critical path", ep.critical_ms, last.critical_ms, "ms");
  add("max/mean load", ep.balance.max_over_mean, last.balance.max_over_mean, "ratio");
  add("worst rank's peak", ep.worst_peak_bytes(), last.worst_peak_bytes(), "bytes");
  add("rows sent", ep.dispatch_bytes + ep.combine_bytes, last.dispatch_bytes + last.combine_bytes, "bytes");
  add("weights moved", ep.transfer_bytes, last.transfer_bytes, "bytes");
  if (report.setup.reference.budget.cuts()) add("chunks", ep.chunks, last.chunks, "count");
  return {{"kind", "tiles"},
          {"id", "summary"},
          {"title", fmt::format("ep and {}", internal::planner_of(last))},
          {"before", "ep"},
          {"after", internal::planner_of(last)},
          {"verdict",
           Json::array({fmt::format("{} is {:.2f}x as fast as ep, {} of the ideal {:.2f}x",
                                    internal::planner_of(last), last.speedup,
                                    internal::percent(last.speedup / ideal), ideal),
                        fmt::format("Medians of {} steps; ep against itself is {:.3f}x +- {:.3f}.",
                                    report.setup.rounds, figures.control.median, figures.control.spread)})},
          {"tiles", std::move(tiles)}};
}

Json by_rank(const std::vector<const CandidateFigures*>& all, const char* part,
             const std::vector<std::int64_t> CandidateFigures::*figure) {
  Json panels = Json::array();
  for (const CandidateFigures* of : all) {
    Json bars = Json::array();
    for (std::size_t rank = 0; rank < (of->*figure).size(); ++rank)
      bars.push_back(
          {{"label", rank}, {"parts", Json::array({{{"name", part}, {"value", (of->*figure)[rank]}}})}});
    panels.push_back({{"name", internal::planner_of(*of)}, {"bars", std::move(bars)}});
  }
  return panels;
}

Json loads_of(const std::vector<const CandidateFigures*>& all) {
  double sum = 0;
  for (const std::int64_t load : all.front()->rank_loads) sum += static_cast<double>(load);
  const double mean = sum / static_cast<double>(all.front()->rank_loads.size());
  return {{"kind", "stack"},
          {"id", "loads"},
          {"title", "Load of ranks"},
          {"caption", "Assignments that each rank computes."},
          {"unit", "count"},
          {"x", "rank"},
          {"y", "assignments"},
          {"line", {{"y", mean}, {"label", "mean"}}},
          {"panels", by_rank(all, "load", &CandidateFigures::rank_loads)}};
}

Json peaks_of(const std::vector<const CandidateFigures*>& all, const Budget& budget) {
  Json section = {
      {"kind", "stack"},
      {"id", "peaks"},
      {"title", "Peak of each rank's memory"},
      {"caption", "What the layer borrows of a rank's arena; its own weights are not part of it."},
      {"unit", "bytes"},
      {"x", "rank"},
      {"y", "peak bytes"},
      {"panels", by_rank(all, "peak", &CandidateFigures::peak_bytes)}};
  if (budget.is_given()) section["line"] = {{"y", budget.bytes}, {"label", "budget"}};
  return section;
}

Json phases_of(const std::vector<const CandidateFigures*>& all) {
  Json bars = Json::array();
  for (const CandidateFigures* of : all) {
    Json parts = Json::array();
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      parts.push_back(
          {{"name", name_of(static_cast<Phase>(phase))}, {"value", internal::drawn(of->phases_ms[phase])}});
    bars.push_back({{"label", internal::planner_of(*of)}, {"parts", std::move(parts)}});
  }
  return {{"kind", "stack"},
          {"id", "phases"},
          {"title", "Where the time goes"},
          {"caption", internal::kCriticalPath},
          {"unit", "ms"},
          {"x", "planner"},
          {"y", "critical path"},
          {"panels", Json::array({{{"name", ""}, {"bars", std::move(bars)}}})}};
}

std::string label_of(const StepMoment& moment) {
  return fmt::format("{}{}{}", moment.backward ? "backward " : "", name_of(moment.phase),
                     moment.chunk < 0 ? "" : fmt::format(" {}", moment.chunk));
}

Json timelines_of(const RunReport& report) {
  const Figures& figures = report.checked.figures;
  Json panels = Json::array();
  for (std::size_t i = 0; i < figures.timelines.size(); ++i) {
    const std::vector<StepRecord>& ranks = figures.timelines[i].ranks;
    const auto fullest = std::ranges::max_element(
        ranks, {}, [](const StepRecord& record) { return std::ranges::max(record.in_use); });
    Json marks = Json::array();
    for (const TimedPhase& phase : fullest->phases) {
      const auto point = std::ranges::lower_bound(fullest->seconds, phase.begin) - fullest->seconds.begin();
      marks.push_back({{"at", point}, {"label", label_of(phase.moment)}});
    }
    const std::string planner = internal::planner_of(figures.candidates[i]);
    Json series = {{"name", planner}, {"values", internal::drawn(fullest->in_use)}};
    panels.push_back({{"name", fmt::format("{}, rank {}", planner, fullest - ranks.begin())},
                      {"series", Json::array({std::move(series)})},
                      {"marks", std::move(marks)}});
  }
  Json section = {{"kind", "memory"},
                  {"id", "memory"},
                  {"title", "Memory over a step"},
                  {"caption", "Bytes that the fullest rank's arena has lent. A phase's number is its chunk."},
                  {"x", "buffers that come or go"},
                  {"panels", std::move(panels)}};
  if (const Budget& budget = report.setup.reference.budget; budget.is_given())
    section["budget"] = budget.bytes;
  return section;
}

Json table_of(const RunReport& report) {
  const Figures& figures = report.checked.figures;
  Json rows = Json::array();
  for (std::size_t i = 0; i < figures.candidates.size(); ++i) {
    const CandidateFigures& of = figures.candidates[i];
    const Accuracy& accuracy = report.checked.accuracy[i];
    Json row = internal::json_of(
        of,
        {"planner", "speedup", "share_of_ideal", "critical_ms", "wall_ms", "wait_ms", "max_over_mean",
         "mean_over_max", "relative_excess", "dispatch_bytes", "combine_bytes", "transfer_bytes", "transfers",
         "plan_us", "chunks", "recomputed_fraction", "reason"},
        figures.ideal_speedup());
    row.update({{"peak", of.worst_peak_bytes()},
                {"error", fmt::format("{:.1e}", accuracy.max_rel_error)},
                {"bits", internal::yes_or_no(accuracy.bitwise_equal)}});
    rows.push_back(std::move(row));
  }
  return {{"kind", "table"},
          {"id", "planners"},
          {"title", "All planners"},
          {"caption",
           "Error: against dense fp64, of the worst tensor. Equal bits: of the output, against one rank "
           "under ep."},
          {"columns", Json::array({column("planner", "planner", ""),
                                   column("speedup", "speed-up", "ratio"),
                                   column("share_of_ideal", "of the ideal", "share"),
                                   column("critical_ms", "critical path", "ms"),
                                   column("wall_ms", "wall clock", "ms"),
                                   column("wait_ms", "waiting", "ms"),
                                   column("max_over_mean", "max/mean load", "ratio"),
                                   column("mean_over_max", "mean/max", "ratio"),
                                   column("relative_excess", "(max-mean)/mean", "ratio"),
                                   column("peak", "worst peak", "bytes"),
                                   column("dispatch_bytes", "dispatched", "bytes"),
                                   column("combine_bytes", "combined", "bytes"),
                                   column("transfer_bytes", "weights moved", "bytes"),
                                   column("transfers", "weight transfers", "count"),
                                   column("plan_us", "planning", "us"),
                                   column("chunks", "chunks", "count"),
                                   column("recomputed_fraction", "recomputed", "share"),
                                   column("reason", "reason", ""),
                                   column("error", "largest error", ""),
                                   column("bits", "equal bits", "")})},
          {"rows", std::move(rows)}};
}

}  // namespace

std::string to_html(const RunReport& report, const PageOrigin& origin) {
  const ExperimentSetup& setup = report.setup;
  const Figures& figures = report.checked.figures;
  Json page = internal::page_of(fmt::format("One step: {}", report.batch), origin);
  const std::string layer = report.layer ? fmt::format("layer {}, ", *report.layer) : "";
  page["notes"] = {
      fmt::format("{}homes {}{}, {} tokens", layer, report.placement ? "of " : "in the order of the experts",
                  report.placement.value_or(""), report.tokens),
      internal::layer_line(setup.shape, setup.placement.num_ranks(), setup.backward),
      internal::kCriticalPath};
  if (setup.reference.budget.cuts())
    page["notes"].push_back(internal::budget_line(setup.reference.budget, figures.reference.least_budget));
  const std::vector<const CandidateFigures*> all = with_reference(figures);
  Json& sections = page["sections"];
  sections = {summary_of(report), loads_of(all), phases_of(all), peaks_of(all, setup.reference.budget)};
  if (!figures.timelines.empty()) sections.push_back(timelines_of(report));
  sections.push_back(table_of(report));
  return internal::html_page(page);
}

}  // namespace evenkeel
