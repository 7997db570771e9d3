// The scenario table and ablations of `evenkeel bench`.
#include <fmt/format.h>

#include "evenkeel/report/internal/figures.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

namespace {

using internal::Json;
using internal::Page;

// The scenario's name without "concentrated:", which occurs in nearly every row.
std::string short_name(const std::string& scenario) {
  constexpr std::string_view common = "concentrated:";
  return scenario.starts_with(common) ? scenario.substr(common.size()) : scenario;
}

std::string ratio_or_none(double value) {
  return value > 0 ? fmt::format("{:.2f}", value) : "-";
}

Json json_of_row(const CandidateFigures& of, double ideal, double peak_ratio, bool on_nodes) {
  Json json = internal::json_of(of,
                                {"planner", "critical_ms", "wall_ms", "speedup", "share_of_ideal",
                                 "max_over_mean", "plan_us", "peak_bytes"},
                                ideal);
  json["peak_ratio"] = peak_ratio > 0 ? Json(peak_ratio) : Json(nullptr);
  json.update(internal::json_of(of, {"transfers", "chunks", "recomputed_fraction"}));
  if (on_nodes) json.update(internal::json_of(of, internal::kBetweenNodes));
  return json;
}

}  // namespace

std::string to_text(const Series& series) {
  const StudySetup& setup = series.setup;
  Page page;
  page.put("{}; {} tokens a rank, {} interleaved pairs, min-segment {}\n", internal::layer_line(setup),
           setup.tokens, setup.pairs, setup.planners.front().min_segment);
  internal::put_places(page, setup.where);
  page.put("{}\n\n", internal::kCriticalPath);
  std::vector<std::string> head = {
      series.parameter.empty() ? "share:experts" : series.parameter + "  share:experts", "ideal", "A/A",
      "peak ep"};
  for (const CandidateFigures& of : series.rows.front().figures.candidates)
    head.insert(head.end(), {internal::planner_of(of), "share", "peak", "moves"});
  Table table(head);
  for (const SeriesRow& row : series.rows) {
    const double ideal = row.figures.ideal_speedup();
    const std::string name = short_name(row.scenario);
    std::vector<std::string> cells = {
        row.value.empty() ? name : fmt::format("{}  {}", row.value, name), fmt::format("{:.2f}x", ideal),
        fmt::format("+-{:.3f}", row.figures.control.spread), ratio_or_none(row.ep_peak_ratio)};
    for (std::size_t i = 0; i < row.figures.candidates.size(); ++i) {
      const CandidateFigures& of = row.figures.candidates[i];
      cells.insert(cells.end(), {fmt::format("{:.2f}x", of.speedup), internal::percent(of.speedup / ideal),
                                 ratio_or_none(row.peak_ratios[i]), fmt::format("{}", of.transfers)});
    }
    table.add(std::move(cells));
  }
  if (setup.budget.cuts())
    page.put("{}\n\n",
             internal::budget_line(setup.budget, series.rows.front().figures.reference.least_budget));
  page.put(table);
  page.put(
      "  under a planner's name its speed-up over ep; share: of the ideal; A/A: spread of ep over itself\n"
      "  peak: the worst rank's bytes / the same planner's when balanced; moves: weight transfers\n");
  return std::move(page).text();
}

std::string to_json(const Series& series) {
  const bool on_nodes = !series.setup.where.node_of_rank.empty();
  const StudySetup& setup = series.setup;
  Json rows = Json::array();
  for (const SeriesRow& row : series.rows) {
    const double ideal = row.figures.ideal_speedup();
    Json planners = Json::array();
    for (std::size_t i = 0; i < row.figures.candidates.size(); ++i)
      planners.push_back(json_of_row(row.figures.candidates[i], ideal, row.peak_ratios[i], on_nodes));
    Json one = {{"scenario", row.scenario}};
    if (!series.parameter.empty()) one[series.parameter] = row.value;
    one["ideal_speedup"] = ideal;
    one.update(internal::json_of_control(row.figures.control));
    one["ep"] = json_of_row(row.figures.reference, ideal, row.ep_peak_ratio, on_nodes);
    one["planners"] = std::move(planners);
    rows.push_back(std::move(one));
  }
  Json json = {{"ranks", setup.ranks},
               {"backend", internal::backend_of(setup.where)},
               {"tokens_per_rank", setup.tokens}};
  json.update(internal::json_of(setup.budget, series.rows.front().figures.reference.least_budget));
  json.update(internal::json_of(setup));
  json["rows"] = std::move(rows);
  return internal::line_of(json);
}

}  // namespace evenkeel
