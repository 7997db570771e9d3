#include "cli/run_report.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "cli/budget_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/spill_decision.h"
#include "cli/timeline_report.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

const char* const kCriticalPath =
    "critical path: the largest CPU time of any rank in each phase, summed over phases; no overlap";

namespace {

using Json = nlohmann::ordered_json;

// A whole number where it is one: ranks may have unlike numbers of tokens.
Json tokens_per_rank(const Batch& batch) {
  if (batch.num_tokens() % batch.num_ranks() == 0) return batch.num_tokens() / batch.num_ranks();
  return static_cast<double>(batch.num_tokens()) / batch.num_ranks();
}

Json json_of(const CandidateFigures& of, const Accuracy& accuracy, double ideal) {
  Json phases = Json::object();
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    phases[std::string(evenkeel::name_of(static_cast<Phase>(phase)))] = of.phases_ms[phase];
  return {{"planner", name_of(of.candidate.planner.kind)},
          {"critical_ms", of.critical_ms},
          {"wall_ms", of.wall_ms},
          {"wait_ms", of.wait_ms},
          {"least_wait_ms", of.least_wait_ms},
          {"phases_ms", std::move(phases)},
          {"plan_us", of.plan_us},
          {"max_over_mean", of.balance.max_over_mean},
          {"mean_over_max", of.balance.mean_over_max},
          {"relative_excess", of.balance.relative_excess},
          {"ideal_speedup", ideal},
          {"speedup", of.speedup},
          {"share_of_ideal", of.speedup / ideal},
          {"rank_loads", of.rank_loads},
          {"peak_bytes", of.peak_bytes},
          {"dispatch_bytes", of.dispatch_bytes},
          {"combine_bytes", of.combine_bytes},
          {"transfer_bytes", of.transfer_bytes},
          {"transfers", of.transfers},
          {"chunks", of.chunks},
          {"recomputed_fraction", of.recomputed_fraction},
          {"max_abs_error", accuracy.max_abs_error},
          {"max_rel_error", accuracy.max_rel_error},
          {"bitwise_equal", accuracy.bitwise_equal ? Json(*accuracy.bitwise_equal) : Json(nullptr)}};
}

std::string ms(double milliseconds) {
  return milliseconds < 10 ? fmt::format("{:.2f} ms", milliseconds) : fmt::format("{:.1f} ms", milliseconds);
}

std::string name(const CandidateFigures& of) {
  return std::string(name_of(of.candidate.planner.kind));
}

// "layer 4, homes of p.json, 4096 tokens".
std::string describe(const RunInputs& inputs, const Batch& batch) {
  return fmt::format(
      "{}{}, {} tokens", inputs.layer ? fmt::format("layer {}, ", *inputs.layer) : "",
      inputs.placement ? fmt::format("homes of {}", *inputs.placement) : "homes in the order of the experts",
      batch.num_tokens());
}

// One figure of every planner of every comparison.
using Cell = std::function<std::string(const CandidateFigures&, const Accuracy&, double ideal)>;

std::vector<std::string> line(const std::string& figure, const std::vector<Comparison>& comparisons,
                              const Cell& cell) {
  std::vector<std::string> row = {figure};
  for (const Comparison& each : comparisons) {
    const Figures& figures = each.checked.figures;
    for (std::size_t i = 0; i < figures.candidates.size(); ++i)
      row.push_back(cell(figures.candidates[i], each.checked.accuracy[i], figures.ideal_speedup()));
  }
  return row;
}

void print_phases(const Figures& figures) {
  std::vector<std::string> head = {"critical path by phase"};
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    head.emplace_back(evenkeel::name_of(static_cast<Phase>(phase)));
  head.emplace_back("planner alone");
  Table table(head);
  for (const CandidateFigures& of : figures.candidates) {
    std::vector<std::string> row = {name(of)};
    for (double each : of.phases_ms) row.push_back(ms(each));
    row.push_back(fmt::format("{:.1f} us", of.plan_us));
    table.add(row);
  }
  put("\n{}", table.text());
}

}  // namespace

std::string yes_or_no(const std::optional<bool>& answer) {
  if (!answer) return "-";
  return *answer ? "yes" : "no";
}

void print_comparisons(const std::vector<Comparison>& comparisons, bool in_chunks) {
  std::vector<std::string> names = {""};
  for (const Comparison& each : comparisons) {
    names.push_back(each.name);
    names.resize(names.size() + each.checked.accuracy.size() - 1);
  }
  Table table(names);
  const auto add = [&](const char* figure, const Cell& cell) { table.add(line(figure, comparisons, cell)); };
  using F = CandidateFigures;
  using A = Accuracy;
  add("planner", [](const F& of, const A&, double) { return name(of); });
  add("speed-up", [](const F& of, const A&, double) { return fmt::format("{:.2f}x", of.speedup); });
  add("of the ideal", [](const F& of, const A&, double ideal) {
    return of.candidate.is_plain() ? "-" : fmt::format("{:.0f} %", 100 * of.speedup / ideal);
  });
  add("critical path", [](const F& of, const A&, double) { return ms(of.critical_ms); });
  add("wall clock", [](const F& of, const A&, double) { return ms(of.wall_ms); });
  add("max/mean load",
      [](const F& of, const A&, double) { return fmt::format("{:.3f}", of.balance.max_over_mean); });
  add("worst rank's peak", [](const F& of, const A&, double) { return format_bytes(of.worst_peak_bytes()); });
  if (in_chunks) {
    add("chunks", [](const F& of, const A&, double) { return fmt::format("{}", of.chunks); });
    add("recomputed",
        [](const F& of, const A&, double) { return fmt::format("{:.0f} %", 100 * of.recomputed_fraction); });
  }
  add("dispatched", [](const F& of, const A&, double) { return format_bytes(of.dispatch_bytes); });
  add("combined", [](const F& of, const A&, double) { return format_bytes(of.combine_bytes); });
  add("weights moved", [](const F& of, const A&, double) { return format_bytes(of.transfer_bytes); });
  add("weight transfers", [](const F& of, const A&, double) { return fmt::format("{}", of.transfers); });
  add("planning", [](const F& of, const A&, double) { return fmt::format("{:.1f} us", of.plan_us); });
  add("largest error", [](const F&, const A& of, double) { return fmt::format("{:.1e}", of.max_rel_error); });
  add("bits equal", [](const F&, const A& of, double) { return yes_or_no(of.bitwise_equal); });
  put("{}  {}\n", table.text(), kCriticalPath);
  for (const Comparison& each : comparisons)
    put("  {}: ideal {:.2f}x; ep against itself {:.3f}x +- {:.3f}\n", each.name,
        each.checked.figures.ideal_speedup(), each.checked.figures.control.median,
        each.checked.figures.control.spread);
  put("  error: against dense fp64, of the worst tensor; bits: of the output, against one rank under ep\n");
}

void print_picture(const Comparison& comparison) {
  const Figures& figures = comparison.checked.figures;
  const CandidateFigures& last = figures.candidates.back();
  put("\n  {}\n{}", comparison.name,
      load_picture(figures.reference.rank_loads, last.rank_loads, "load under ep",
                   fmt::format("load under {}", name(last))));
}

std::string describe(const ExperimentSetup& setup) {
  const ExpertShape& expert = setup.shape.expert;
  return fmt::format("{} ranks, {} experts, top-{}, {} x {} {} {}, {}", setup.placement.num_ranks(),
                     setup.shape.num_experts, setup.shape.top_k, expert.hidden, expert.intermediate,
                     evenkeel::name_of(expert.activation), evenkeel::name_of(expert.type),
                     setup.backward ? "forward and backward" : "forward");
}

Json json_of(const Budget& budget, std::int64_t least_budget) {
  const ChunkRule& rule = budget.memory.rule;
  return {{"budget", budget.is_given() ? Json(budget.bytes) : Json(nullptr)},
          {"least_budget", least_budget},
          {"chunks", rule.kind == ChunkRule::Kind::equal ? Json(rule.count) : Json(name_of(rule))},
          {"recompute", name_of(budget.memory.recompute)},
          {"chunks_in_flight", budget.memory.chunks_in_flight}};
}

// The threshold, or the costs, that decide whether work moves.
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

void print_json(const ExperimentSetup& setup, const RunInputs& inputs, const Batch& batch,
                const CheckedFigures& checked) {
  const Figures& figures = checked.figures;
  Json planners = Json::array();
  for (std::size_t i = 0; i < checked.accuracy.size(); ++i) {
    planners.push_back(json_of(figures.candidates[i], checked.accuracy[i], figures.ideal_speedup()));
    if (setup.timelines) planners.back()["timeline"] = json_of(figures.timelines[i]);
  }
  Json json = {{"ranks", setup.placement.num_ranks()}, {"tokens_per_rank", tokens_per_rank(batch)}};
  json["tokens"] = batch.num_tokens();
  json["layer_number"] = inputs.layer ? Json(*inputs.layer) : Json(nullptr);
  json["placement"] = inputs.placement ? Json(*inputs.placement) : Json(nullptr);
  json.update(json_of(setup.reference.budget, checked.figures.reference.least_budget));
  json.update(json_of_threshold(setup.candidates.back().planner));
  json.update({{"batch", batch.name},
               {"layer", describe(setup)},
               {"repeat", setup.rounds},
               {"control_ratio", checked.figures.control.median},
               {"control_spread", checked.figures.control.spread},
               {"planners", std::move(planners)}});
  print_object(json);
}

void print_table(const ExperimentSetup& setup, const RunInputs& inputs, const Batch& batch,
                 const CheckedFigures& checked) {
  const Comparison only = {fmt::format("{} tokens", batch.num_tokens()), checked};
  put("{}\n{}\n{}; medians of {} steps\n", batch.name, describe(inputs, batch), describe(setup),
      setup.rounds);
  const Candidate& last = setup.candidates.back();
  if (last.planner.costs) put("{}\n", describe(*last.planner.costs));
  if (setup.reference.budget.cuts())
    put("{}\n", describe(setup.reference.budget, checked.figures.reference.least_budget));
  put("\n");
  print_comparisons({only}, setup.reference.budget.cuts());
  print_phases(checked.figures);
  print_picture(only);
  for (std::size_t i = 0; i < checked.figures.timelines.size(); ++i)
    put("\n{}", timeline_picture(checked.figures.timelines[i], name(checked.figures.candidates[i]),
                                 setup.candidates[i].budget));
}

}  // namespace evenkeel::cli
