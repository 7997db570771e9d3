#include "evenkeel/report/internal/figures.h"

#include <functional>
#include <set>

#include "evenkeel/base/bytes.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/table.h"

namespace evenkeel::internal {

namespace {

Json interval(const RoundRatio& ratio) {
  return Json::array({ratio.low, ratio.high});
}

Json phases_of(const CandidateFigures& of) {
  Json phases = Json::object();
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    phases[std::string(name_of(static_cast<Phase>(phase)))] = of.phases_ms[phase];
  return phases;
}

// Formats one figure of one planner in one comparison.
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

void put_footnotes(Page& page, const std::vector<Comparison>& comparisons) {
  page.put("  {}\n", kCriticalPath);
  for (const Comparison& each : comparisons)
    page.put("  {}: ideal {:.2f}x; ep against itself {:.3f}x +- {:.3f}\n", each.name,
             each.checked.figures.ideal_speedup(), each.checked.figures.control.median,
             each.checked.figures.control.spread);
  page.put(
      "  error: against dense fp64, of the worst tensor; bits: of the output, against one rank under ep\n");
}

}  // namespace

std::string layer_line(const MoeShape& shape, int ranks, bool backward) {
  return fmt::format("{} ranks, {}, {}", ranks, describe(shape),
                     backward ? "forward and backward" : "forward");
}

std::string layer_line(const StudySetup& setup) {
  return layer_line(setup.shape, setup.ranks, setup.backward);
}

std::string budget_line(const Budget& budget, std::int64_t least_budget) {
  const std::string given =
      budget.is_given() ? fmt::format("budget {} a rank", format_bytes(budget.bytes)) : "no budget";
  return fmt::format("{} (least budget {}), chunks {}, recompute {}", given, format_bytes(least_budget),
                     name_of(budget.memory.rule), name_of(budget.memory.recompute));
}

std::string costs_lines(const SpillCosts& costs) {
  return fmt::format(
      "imbalance-threshold auto: work moves where that is predicted to pay\n"
      "  {:.1f} us an assignment, {:.0f} us an expert that moves, {:.0f} us a step that moves any",
      1e6 * costs.seconds_per_assignment, 1e6 * costs.seconds_per_transfer, 1e6 * costs.seconds_per_step);
}

std::string planner_of(const CandidateFigures& of) {
  return std::string(name_of(of.candidate.planner.kind));
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

std::string milliseconds(double ms) {
  return fmt::format("{:.{}f} ms", ms, ms < 10 ? 2 : 1);
}

std::string yes_or_no(const std::optional<bool>& answer) {
  if (!answer) return "-";
  return *answer ? "yes" : "no";
}

Json json_of(const CandidateFigures& of, std::span<const std::string_view> keys, double ideal) {
  const Json all = {{"planner", name_of(of.candidate.planner.kind)},
                    {"critical_ms", of.critical_ms},
                    {"wall_ms", of.wall_ms},
                    {"wait_ms", of.wait_ms},
                    {"least_wait_ms", of.least_wait_ms},
                    {"phases_ms", phases_of(of)},
                    {"plan_us", of.plan_us},
                    {"max_over_mean", of.balance.max_over_mean},
                    {"mean_over_max", of.balance.mean_over_max},
                    {"relative_excess", of.balance.relative_excess},
                    {"ideal_speedup", ideal},
                    {"speedup", of.speedup},
                    {"share_of_ideal", of.speedup / ideal},
                    {"time_ratio", of.time.median},
                    {"time_spread", of.time.spread},
                    {"time_interval", interval(of.time)},
                    {"cpu_ratio", of.cpu.median},
                    {"cpu_interval", interval(of.cpu)},
                    {"rank_loads", of.rank_loads},
                    {"peak_bytes", of.peak_bytes},
                    {"dispatch_bytes", of.dispatch_bytes},
                    {"combine_bytes", of.combine_bytes},
                    {"transfer_bytes", of.transfer_bytes},
                    {"bytes_between_nodes", of.bytes_between_nodes},
                    {"dispatch_bytes_between_nodes", of.dispatch_bytes_between_nodes},
                    {"transfer_bytes_between_nodes", of.transfer_bytes_between_nodes},
                    {"most_bytes_of_a_node", of.most_bytes_of_a_node},
                    {"spilled", of.transfers > 0},
                    {"transfers", of.transfers},
                    {"reason", name_of(of.reason)},
                    {"chunks", of.chunks},
                    {"recomputed_fraction", of.recomputed_fraction}};
  Json json = Json::object();
  for (const std::string_view key : keys) json[std::string(key)] = all.at(std::string(key));
  return json;
}

std::string_view backend_of(const RankPlaces& where) {
  return where.comm == nullptr ? "threads" : "mpi";
}

std::size_t count_nodes(const RankPlaces& where) {
  return std::set(where.node_of_rank.begin(), where.node_of_rank.end()).size();
}

void put_places(Page& page, const RankPlaces& where) {
  if (where.comm != nullptr) page.put("ranks are processes, on MPI\n");
  if (const std::size_t nodes = count_nodes(where); nodes > 0)
    page.put("{}{}{}\n", counted(static_cast<std::int64_t>(nodes), "node", "nodes"),
             where.two_levels ? "; a row that several ranks of one want crosses the link to it once" : "",
             where.sum_in_nodes ? ", and returns as one sum" : "");
}

Json json_of_control(const RoundRatio& control) {
  return {{"control_ratio", control.median}, {"control_spread", control.spread}};
}

Json json_of(const Budget& budget, std::int64_t least_budget) {
  const ChunkRule& rule = budget.memory.rule;
  return {{"budget", budget.is_given() ? Json(budget.bytes) : Json(nullptr)},
          {"least_budget", least_budget},
          {"chunks", rule.kind == ChunkRule::Kind::equal ? Json(rule.count) : Json(name_of(rule))},
          {"recompute", name_of(budget.memory.recompute)}};
}

Json json_of(const StudySetup& setup) {
  return {{"ranks", setup.ranks},
          {"tokens_per_rank", setup.tokens},
          {"layer", layer_line(setup)},
          {"pairs", setup.pairs}};
}

void put_comparisons(Page& page, const std::vector<Comparison>& comparisons, bool in_chunks, bool on_nodes) {
  std::vector<std::string> names = {""};
  for (const Comparison& each : comparisons) {
    names.push_back(each.name);
    names.resize(names.size() + each.checked.accuracy.size() - 1);
  }
  Table table(names);
  const auto add = [&](const char* figure, const Cell& cell) { table.add(line(figure, comparisons, cell)); };
  using F = CandidateFigures;
  using A = Accuracy;
  add("planner", [](const F& of, const A&, double) { return planner_of(of); });
  add("speed-up", [](const F& of, const A&, double) { return fmt::format("{:.2f}x", of.speedup); });
  add("of the ideal", [](const F& of, const A&, double ideal) {
    return of.candidate.is_plain() ? "-" : percent(of.speedup / ideal);
  });
  add("critical path", [](const F& of, const A&, double) { return milliseconds(of.critical_ms); });
  add("wall clock", [](const F& of, const A&, double) { return milliseconds(of.wall_ms); });
  add("max/mean load",
      [](const F& of, const A&, double) { return fmt::format("{:.3f}", of.balance.max_over_mean); });
  add("worst rank's peak", [](const F& of, const A&, double) { return format_bytes(of.worst_peak_bytes()); });
  if (in_chunks) {
    add("chunks", [](const F& of, const A&, double) { return fmt::format("{}", of.chunks); });
    add("recomputed", [](const F& of, const A&, double) { return percent(of.recomputed_fraction); });
    add("reason", [](const F& of, const A&, double) { return std::string(name_of(of.reason)); });
  }
  add("dispatched", [](const F& of, const A&, double) { return format_bytes(of.dispatch_bytes); });
  add("combined", [](const F& of, const A&, double) { return format_bytes(of.combine_bytes); });
  add("weights moved", [](const F& of, const A&, double) { return format_bytes(of.transfer_bytes); });
  if (on_nodes) {
    add("between nodes", [](const F& of, const A&, double) { return format_bytes(of.bytes_between_nodes); });
    add("most of one node",
        [](const F& of, const A&, double) { return format_bytes(of.most_bytes_of_a_node); });
  }
  add("weight transfers", [](const F& of, const A&, double) { return fmt::format("{}", of.transfers); });
  add("planning", [](const F& of, const A&, double) { return fmt::format("{:.1f} us", of.plan_us); });
  add("largest error", [](const F&, const A& of, double) { return fmt::format("{:.1e}", of.max_rel_error); });
  add("bits equal", [](const F&, const A& of, double) { return yes_or_no(of.bitwise_equal); });
  page.put(table);
  put_footnotes(page, comparisons);
}

void put_loads(Page& page, const Comparison& comparison) {
  const Figures& figures = comparison.checked.figures;
  const CandidateFigures& last = figures.candidates.back();
  page.put("\n  {}\n", comparison.name);
  page.put_lines(load_picture(figures.reference.rank_loads, last.rank_loads, "load under ep",
                              fmt::format("load under {}", planner_of(last))));
}

}  // namespace evenkeel::internal
