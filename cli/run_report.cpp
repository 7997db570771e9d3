#include "cli/run_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/options.h"
#include "cli/table.h"
#include "evenkeel/base/bytes.h"

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

Json json_of(const PlannerFigures& of, const Accuracy& accuracy, double ideal) {
  Json phases = Json::object();
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    phases[std::string(evenkeel::name_of(static_cast<Phase>(phase)))] = of.phases_ms[phase];
  return {{"planner", name_of(of.planner.kind)},
          {"critical_ms", of.critical_ms},
          {"wall_ms", of.wall_ms},
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
          {"max_abs_error", accuracy.max_abs_error},
          {"max_rel_error", accuracy.max_rel_error},
          {"bitwise_equal", accuracy.bitwise_equal ? Json(*accuracy.bitwise_equal) : Json(nullptr)}};
}

std::string ms(double milliseconds) {
  return milliseconds < 10 ? fmt::format("{:.2f} ms", milliseconds) : fmt::format("{:.1f} ms", milliseconds);
}

std::string yes_or_no(const std::optional<bool>& answer) {
  if (!answer) return "-";
  return *answer ? "yes" : "no";
}

std::string name(const PlannerFigures& of) {
  return std::string(name_of(of.planner.kind));
}

void print_times(const CheckedFigures& checked) {
  const double ideal = checked.figures.ideal_speedup();
  Table table({"planner", "speed-up", "of ideal", "critical path", "wall clock", "max/mean", "worst peak",
               "max error", "bits equal"});
  for (std::size_t i = 0; i < checked.accuracy.size(); ++i) {
    const PlannerFigures& of = checked.figures.planners[i];
    table.add({name(of), fmt::format("{:.2f}x", of.speedup),
               fmt::format("{:.0f} %", 100 * of.speedup / ideal), ms(of.critical_ms), ms(of.wall_ms),
               fmt::format("{:.3f}", of.balance.max_over_mean), format_bytes(of.worst_peak_bytes()),
               fmt::format("{:.1e}", checked.accuracy[i].max_rel_error),
               yes_or_no(checked.accuracy[i].bitwise_equal)});
  }
  fmt::print("{}", table.text());
}

void print_phases(const Figures& figures) {
  std::vector<std::string> head = {"critical path by phase"};
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    head.emplace_back(evenkeel::name_of(static_cast<Phase>(phase)));
  head.emplace_back("planner alone");
  Table table(head);
  for (const PlannerFigures& of : figures.planners) {
    std::vector<std::string> row = {name(of)};
    for (double each : of.phases_ms) row.push_back(ms(each));
    row.push_back(fmt::format("{:.1f} us", of.plan_us));
    table.add(row);
  }
  fmt::print("\n{}", table.text());
}

void print_bytes(const Figures& figures) {
  Table table({"bytes between ranks", "dispatch", "combine", "weights", "transfers"});
  for (const PlannerFigures& of : figures.planners)
    table.add({name(of), format_bytes(of.dispatch_bytes), format_bytes(of.combine_bytes),
               format_bytes(of.transfer_bytes), fmt::format("{}", of.transfers)});
  fmt::print("\n{}", table.text());
}

}  // namespace

std::string describe(const ExperimentSetup& setup) {
  const ExpertShape& expert = setup.shape.expert;
  return fmt::format("{} ranks, {} experts, top-{}, {} x {} {} {}, {}", setup.placement.num_ranks(),
                     setup.shape.num_experts, setup.shape.top_k, expert.hidden, expert.intermediate,
                     evenkeel::name_of(expert.activation), evenkeel::name_of(expert.type),
                     setup.backward ? "forward and backward" : "forward");
}

void print_json(const ExperimentSetup& setup, const Batch& batch, const CheckedFigures& checked) {
  Json planners = Json::array();
  for (std::size_t i = 0; i < checked.accuracy.size(); ++i)
    planners.push_back(
        json_of(checked.figures.planners[i], checked.accuracy[i], checked.figures.ideal_speedup()));
  const Json json = {{"ranks", setup.placement.num_ranks()},
                     {"tokens_per_rank", tokens_per_rank(batch)},
                     {"batch", batch.name},
                     {"layer", describe(setup)},
                     {"repeat", setup.rounds},
                     {"control_ratio", checked.figures.control_ratio},
                     {"control_spread", checked.figures.control_spread},
                     {"planners", std::move(planners)}};
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void print_table(const ExperimentSetup& setup, const Batch& batch, const CheckedFigures& checked) {
  const Figures& figures = checked.figures;
  fmt::print("{}: {} tokens\n{}\n\n", batch.name, batch.num_tokens(), describe(setup));
  print_times(checked);
  fmt::print("  ideal {:.2f}x; ep against itself {:.3f}x +- {:.3f}; medians of {} steps\n  {}\n",
             figures.ideal_speedup(), figures.control_ratio, figures.control_spread, setup.rounds,
             kCriticalPath);
  print_phases(figures);
  print_bytes(figures);
  const PlannerFigures& last = figures.planners.back();
  fmt::print("\n{}", load_picture(figures.ep.rank_loads, last.rank_loads, "load under ep",
                                  fmt::format("load under {}", name(last))));
}

}  // namespace evenkeel::cli
