// The pages of `evenkeel bench`: the scenario table, its ablations, and step time over memory budget.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "evenkeel/report/internal/figures.h"
#include "evenkeel/report/internal/html_page.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

namespace {

using internal::column;
using internal::drawn;
using internal::Json;

Json page_of_study(const std::string& title, const StudySetup& setup, const PageOrigin& origin) {
  Json page = internal::page_of(title, origin);
  page["notes"] = {
      fmt::format("{}; {} tokens a rank, {} interleaved rounds, min-segment {}", internal::layer_line(setup),
                  setup.tokens, setup.pairs, setup.planners.front().min_segment),
      internal::kCriticalPath};
  return page;
}

std::optional<double> number_in(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_over_numbers(const Series& series) {
  return !series.parameter.empty() && std::ranges::all_of(series.rows, [](const SeriesRow& row) {
    return number_in(row.value).has_value();
  });
}

// For each scenario, the speed-up as a function of the ablation's parameter.
Json curves_of(const Series& series) {
  std::map<std::string, std::map<std::string, Json>> points;  // by scenario and planner
  for (const SeriesRow& row : series.rows) {
    auto& of_scenario = points[row.scenario];
    const double at = *number_in(row.value);
    of_scenario["ideal"].push_back({at, drawn(row.figures.ideal_speedup())});
    for (const CandidateFigures& of : row.figures.candidates)
      of_scenario[internal::planner_of(of)].push_back({at, drawn(of.speedup)});
  }
  Json panels = Json::array();
  for (auto& [scenario, by_planner] : points) {
    Json lines = Json::array();
    for (auto& [name, of_planner] : by_planner)
      lines.push_back({{"name", name}, {"points", std::move(of_planner)}});
    panels.push_back({{"name", scenario}, {"series", std::move(lines)}});
  }
  const double first = *number_in(series.rows.front().value), last = *number_in(series.rows.back().value);
  return {{"kind", "curves"},
          {"id", "speedup"},
          {"title", fmt::format("Speed-up over ep, by {}", series.parameter)},
          {"x", {{"label", series.parameter}, {"log", first > 0 && last / first >= 8}}},
          {"y", {{"label", "speed-up"}, {"unit", "ratio"}, {"zero", true}}},
          {"line", {{"y", 1}, {"label", "ep"}}},
          {"panels", std::move(panels)}};
}

// One panel for each planner, and one for the ideal.
Json bars_of(const Series& series) {
  Json panels = Json::array();
  const auto add = [&](const std::string& name, const auto& speedup_of) {
    Json bars = Json::array();
    for (const SeriesRow& row : series.rows) {
      const std::string label = row.value.empty() ? row.scenario : row.value + " " + row.scenario;
      const Json part = {{"name", "speed-up"}, {"value", drawn(speedup_of(row.figures))}};
      bars.push_back({{"label", label}, {"parts", Json::array({part})}});
    }
    panels.push_back({{"name", name}, {"bars", std::move(bars)}});
  };
  add("ideal: ep's fullest rank / mean", [](const Figures& figures) { return figures.ideal_speedup(); });
  const auto& planners = series.rows.front().figures.candidates;
  for (std::size_t i = 0; i < planners.size(); ++i)
    add(internal::planner_of(planners[i]),
        [i](const Figures& figures) { return figures.candidates[i].speedup; });
  return {{"kind", "stack"},
          {"id", "speedup"},
          {"title", "Speed-up over ep"},
          {"unit", "ratio"},
          {"x", "scenario"},
          {"y", "speed-up"},
          {"line", {{"y", 1}, {"label", "ep"}}},
          {"panels", std::move(panels)}};
}

Json table_of(const Series& series) {
  Json columns = Json::array({column("scenario", "scenario", "")});
  if (!series.parameter.empty()) columns.push_back(column("value", series.parameter, ""));
  columns.insert(columns.end(),
                 {column("ideal", "ideal", "ratio"), column("spread", "ep over itself +-", "ratio"),
                  column("ep_ms", "critical path of ep", "ms")});
  for (const CandidateFigures& of : series.rows.front().figures.candidates) {
    const std::string name = internal::planner_of(of);
    for (const auto& [key, label, unit] : {std::tuple("speedup", "speed-up", "ratio"),
                                           {"share", "of the ideal", "share"},
                                           {"peak", "peak / balanced", "ratio"},
                                           {"transfers", "weight transfers", "count"}})
      columns.push_back(column(name + " " + key, name + ": " + label, unit));
  }
  Json rows = Json::array();
  for (const SeriesRow& row : series.rows) {
    const double ideal = row.figures.ideal_speedup();
    const std::optional<double> number = number_in(row.value);
    Json one = {{"scenario", row.scenario},
                {"value", row.value.empty() ? Json(nullptr)
                          : number          ? Json(*number)
                                            : Json(row.value)},
                {"ideal", ideal},
                {"spread", row.figures.control.spread},
                {"ep_ms", row.figures.reference.critical_ms}};
    for (std::size_t i = 0; i < row.figures.candidates.size(); ++i) {
      const CandidateFigures& of = row.figures.candidates[i];
      const std::string name = internal::planner_of(of);
      one[name + " speedup"] = of.speedup;
      one[name + " share"] = of.speedup / ideal;
      one[name + " peak"] = row.peak_ratios[i] > 0 ? Json(row.peak_ratios[i]) : Json(nullptr);
      one[name + " transfers"] = of.transfers;
    }
    rows.push_back(std::move(one));
  }
  return {{"kind", "table"},
          {"id", "scenarios"},
          {"title", "All scenarios"},
          {"columns", std::move(columns)},
          {"rows", std::move(rows)}};
}

std::string name_of_line(const CurveRow& row) {
  const std::string name(name_of(row.candidate.planner.kind));
  if (row.candidate.budget.memory.recompute == Recompute::whole) return name + ", whole";
  return row.candidate.budget.is_given() && !row.requested ? name + ", ample" : name;
}

// Step time over the requested budgets; a budget that is too small leaves a gap in the line.
Json panel_of(const Curve& curve) {
  std::map<std::string, Json> points;
  for (const CurveRow& row : curve.rows) {
    if (!row.requested) continue;
    Json point = {drawn(curve.share_of_ep(row.candidate.budget.bytes)), nullptr};
    if (row.figures) {
      const RoundRatio& time = row.figures->time;
      point = {point[0], drawn(time.median), drawn(time.low), drawn(time.high)};
    }
    points[name_of_line(row)].push_back(std::move(point));
  }
  Json series = Json::array();
  for (auto& [name, of_planner] : points)
    series.push_back({{"name", name}, {"points", std::move(of_planner)}});
  return {{"name", curve.scenario}, {"series", std::move(series)}};
}

Json table_of(const Curves& curves) {
  Json rows = Json::array();
  for (const Curve& curve : curves.scenarios)
    for (const CurveRow& row : curve.rows) {
      const Budget& budget = row.candidate.budget;
      Json one = {
          {"scenario", curve.scenario}, {"planner", name_of_line(row)}, {"fits", row.figures.has_value()}};
      if (budget.is_given())
        one.update({{"budget", budget.bytes}, {"share", curve.share_of_ep(budget.bytes)}});
      if (row.figures)
        one.update({{"time", row.figures->time.median},
                    {"low", row.figures->time.low},
                    {"high", row.figures->time.high},
                    {"spread", row.control.spread},
                    {"peak", row.figures->worst_peak_bytes()},
                    {"chunks", row.figures->chunks},
                    {"again", row.figures->recomputed_fraction},
                    {"transfers", row.figures->transfers}});
      rows.push_back(std::move(one));
    }
  return {{"kind", "table"},
          {"id", "budgets"},
          {"title", "All budgets"},
          {"caption",
           "Time: critical path / the planner's without a budget; medians, with their bounds at 95 % "
           "confidence from 6 rounds on."},
          {"columns",
           Json::array({column("scenario", "scenario", ""), column("planner", "planner", ""),
                        column("budget", "budget", "bytes"), column("share", "of ep's peak", "share"),
                        column("fits", "fits", ""), column("time", "time", "ratio"),
                        column("low", "from", "ratio"), column("high", "to", "ratio"),
                        column("spread", "without a budget +-", "ratio"), column("peak", "peak", "bytes"),
                        column("chunks", "chunks", "count"), column("again", "computed again", "share"),
                        column("transfers", "weight transfers", "count")})},
          {"rows", std::move(rows)}};
}

}  // namespace

std::string to_html(const Series& series, const PageOrigin& origin) {
  Json page = page_of_study(series.parameter.empty() ? "The LLEP paper's scenarios"
                                                     : fmt::format("Speed-up by {}", series.parameter),
                            series.setup, origin);
  page["sections"] = {is_over_numbers(series) ? curves_of(series) : bars_of(series), table_of(series)};
  return internal::html_page(page);
}

std::string to_html(const Curves& curves, const PageOrigin& origin) {
  Json page = page_of_study("Time over budget", curves.setup, origin);
  Json panels = Json::array();
  for (const Curve& curve : curves.scenarios) panels.push_back(panel_of(curve));
  page["sections"] = {
      {{"kind", "curves"},
       {"id", "time"},
       {"title", "Time over budget"},
       {"caption",
        fmt::format(
            "The time of {} without a budget is 1. A budget that is too small has no point in the chart.",
            name_of(curves.scenarios.front().reference.candidate.planner.kind))},
       {"x", {{"label", "budget, of ep's peak without one"}, {"unit", "share"}, {"log", true}}},
       {"y", {{"label", "time"}, {"unit", "ratio"}, {"zero", true}}},
       {"line", {{"y", 1}, {"label", "without a budget"}}},
       {"panels", std::move(panels)}},
      table_of(curves)};
  return internal::html_page(page);
}

}  // namespace evenkeel
