// The report of `evenkeel run`.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "evenkeel/report/internal/figures.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

namespace {

using internal::Json;
using internal::Page;

// An integer if possible. It can be a fraction, because ranks may have different numbers of tokens.
Json tokens_per_rank(const RunReport& report) {
  const int ranks = report.setup.placement.num_ranks();
  if (report.tokens % ranks == 0) return report.tokens / ranks;
  return static_cast<double>(report.tokens) / ranks;
}

// The threshold, or the costs, by which the planner decides whether to move work.
Json json_of_threshold(const PlannerOptions& planner) {
  if (!planner.costs)
    return {{"imbalance_threshold", static_cast<double>(planner.imbalance_threshold_thousandths) / 1000},
            {"spill_costs", nullptr}};
  return {{"imbalance_threshold", "auto"},
          {"spill_costs",
           {{"seconds_per_assignment", planner.costs->seconds_per_assignment},
            {"seconds_per_transfer", planner.costs->seconds_per_transfer},
            {"seconds_per_step", planner.costs->seconds_per_step}}}};
}

Json json_of_candidate(const RunReport& report, std::size_t candidate) {
  const Figures& figures = report.checked.figures;
  const Accuracy& accuracy = report.checked.accuracy[candidate];
  Json json = internal::json_of(figures.candidates[candidate],
                                {"planner",        "critical_ms",        "wall_ms",       "wait_ms",
                                 "least_wait_ms",  "phases_ms",          "plan_us",       "max_over_mean",
                                 "mean_over_max",  "relative_excess",    "ideal_speedup", "speedup",
                                 "share_of_ideal", "rank_loads",         "peak_bytes",    "dispatch_bytes",
                                 "combine_bytes",  "transfer_bytes",     "transfers",     "reason",
                                 "chunks",         "recomputed_fraction"},
                                figures.ideal_speedup());
  if (!report.setup.where.node_of_rank.empty())
    json.update(internal::json_of(figures.candidates[candidate], internal::kBetweenNodes));
  json.update({{"max_abs_error", accuracy.max_abs_error},
               {"max_rel_error", accuracy.max_rel_error},
               {"bitwise_equal", internal::or_null(accuracy.bitwise_equal)},
               {"checksum", fmt::format("{:016x}", accuracy.checksum)}});
  return json;
}

// One line if all checksums are equal. Those of outputs are equal if the outputs have the same bits. Those of
// gradients may differ, because each plan sums gradients in its own order.
void put_checksums(Page& page, const RunReport& report) {
  const std::vector<Accuracy>& accuracy = report.checked.accuracy;
  const bool alike = std::ranges::all_of(
      accuracy, [&](const Accuracy& each) { return each.checksum == accuracy.front().checksum; });
  page.put("\n  checksum of {}:\n", report.setup.backward ? "the output and the gradients" : "the output");
  for (std::size_t i = 0; i < (alike ? 1 : accuracy.size()); ++i)
    page.put("  {:016x} under {}\n", accuracy[i].checksum,
             alike ? "every planner" : internal::planner_of(report.checked.figures.candidates[i]));
}

void put_phases(Page& page, const Figures& figures) {
  std::vector<std::string> head = {"critical path by phase"};
  for (std::size_t phase = 0; phase < kPhases; ++phase) head.emplace_back(name_of(static_cast<Phase>(phase)));
  head.emplace_back("planner alone");
  Table table(head);
  for (const CandidateFigures& of : figures.candidates) {
    std::vector<std::string> row = {internal::planner_of(of)};
    for (double each : of.phases_ms) row.push_back(internal::milliseconds(each));
    row.push_back(fmt::format("{:.1f} us", of.plan_us));
    table.add(row);
  }
  page.put("\n");
  page.put(table);
}

}  // namespace

std::string to_text(const RunReport& report) {
  const ExperimentSetup& setup = report.setup;
  const Figures& figures = report.checked.figures;
  Page page;
  page.put("{}\n", report.batch);
  if (report.layer) page.put("layer {}, ", *report.layer);
  page.put("homes {}{}, {} tokens\n", report.placement ? "of " : "in the order of the experts",
           report.placement.value_or(""), report.tokens);
  page.put("{}; median of {}\n",
           internal::layer_line(setup.shape, setup.placement.num_ranks(), setup.backward),
           internal::counted(setup.rounds, "step", "steps"));
  internal::put_places(page, setup.where);
  const PlannerOptions& last = setup.candidates.back().planner;
  if (last.costs) page.put_lines(internal::costs_lines(*last.costs) + "\n");
  if (setup.reference.budget.cuts())
    page.put("{}\n", internal::budget_line(setup.reference.budget, figures.reference.least_budget));
  page.put("\n");
  const internal::Comparison only = {fmt::format("{} tokens", report.tokens), report.checked};
  internal::put_comparisons(page, {only}, setup.reference.budget.cuts(), !setup.where.node_of_rank.empty());
  put_phases(page, figures);
  internal::put_loads(page, only);
  put_checksums(page, report);
  if (report.timeline)
    page.put("\ntimeline in {}, for ui.perfetto.dev or chrome://tracing\n", *report.timeline);
  return std::move(page).text();
}

std::string to_json(const RunReport& report) {
  const ExperimentSetup& setup = report.setup;
  const Figures& figures = report.checked.figures;
  Json json = {{"ranks", setup.placement.num_ranks()},
               {"backend", internal::backend_of(setup.where)},
               {"tokens_per_rank", tokens_per_rank(report)},
               {"tokens", report.tokens},
               {"layer_number", internal::or_null(report.layer)},
               {"placement", internal::or_null(report.placement)}};
  if (const std::size_t nodes = internal::count_nodes(setup.where); nodes > 0)
    json.update({{"nodes", nodes},
                 {"two_levels", setup.where.two_levels},
                 {"sum_in_nodes", setup.where.sum_in_nodes}});
  json.update(internal::json_of(setup.reference.budget, figures.reference.least_budget));
  json.update(json_of_threshold(setup.candidates.back().planner));
  json.update({{"batch", report.batch},
               {"layer", internal::layer_line(setup.shape, setup.placement.num_ranks(), setup.backward)},
               {"repeat", setup.rounds}});
  json.update(internal::json_of_control(figures.control));
  for (std::size_t i = 0; i < figures.candidates.size(); ++i)
    json["planners"].push_back(json_of_candidate(report, i));
  if (report.timeline) json["timeline"] = *report.timeline;
  return internal::line_of(std::move(json), report.axes);
}

}  // namespace evenkeel
