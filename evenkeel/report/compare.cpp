#include "evenkeel/report/compare.h"

#include <fmt/ranges.h>

#include <cmath>

#include "evenkeel/base/bytes.h"
#include "evenkeel/report/internal/compare_json.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/internal/page.h"

namespace evenkeel {

namespace {

using internal::counted;
using internal::fixed;
using internal::grouped;
using internal::Json;
using internal::or_null;
using internal::Page;

int last_step(const Comparison& comparison) {
  return comparison.first_judged + comparison.num_steps - 1;
}

// "steps 20-39 of trace.npz".
std::string steps_text(int first, int last, const std::vector<std::string>& names) {
  const std::string of =
      names.size() == 1 ? names.front() : counted(std::ssize(names), "recording", "recordings");
  return first == last ? fmt::format("step {} of {}", first, of)
                       : fmt::format("steps {}-{} of {}", first, last, of);
}

std::string judged_on(const ComparedRecordings& all) {
  return steps_text(all.comparison.first_judged, last_step(all.comparison), all.recordings);
}

std::string first_placed_on(const ComparedRecordings& all) {
  if (all.comparison.same_data) return "the same data, so placements look better than they are";
  if (!all.placed_from.empty()) return fmt::format("{}", fmt::join(all.placed_from, ", "));
  return steps_text(0, all.comparison.first_judged - 1, all.recordings);
}

std::string placed_on(const ComparedRecordings& all) {
  std::string first = first_placed_on(all);
  if (!all.comparison.place_every) return first;
  return fmt::format("{}; with @{} made anew after every {}, from these", first, *all.comparison.place_every,
                     counted(*all.comparison.place_every, "step", "steps"));
}

std::string bytes_text(double bytes) {
  return format_bytes(std::llround(bytes));
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.4g}", seconds * 1e3);
}

// Three significant digits: 2.44, 24.4, 244, 2,440.
std::string three_digits(double value) {
  return value < 1000 ? fmt::format("{:.3g}", value) : grouped(value);
}

// A name short enough for the table. The full names are listed below it, in the same order.
std::string short_name(const Method& method) {
  constexpr std::size_t most = 18;
  return method.name.size() <= most ? method.name : method.name.substr(0, most - 1) + "…";
}

Table step_table(const ComparedRecordings& all) {
  const bool timed = all.comparison.has_seconds;
  std::vector<std::string> head = {"max/mean", "median", "p95", "worst"};
  if (timed) head.insert(head.end(), {"ms: median", "p95"});
  head.insert(head.end(), {"vs ep", "of ideal", "verdict"});
  Table table(std::move(head));
  for (std::size_t m = 0; m < all.summaries.size(); ++m) {
    const MethodSummary& sum = all.summaries[m];
    const Spread& level = sum.max_over_mean;
    std::vector<std::string> row = {short_name(all.comparison.methods[m].method), fixed(level.median, 2),
                                    fixed(level.p95, 2), fixed(level.worst, 2)};
    if (timed) row.insert(row.end(), {milliseconds(sum.seconds->median), milliseconds(sum.seconds->p95)});
    row.insert(row.end(), {sum.speedup ? fixed(*sum.speedup, 2) + "x" : "-",
                           sum.share_of_ideal ? fmt::format("{:.0f} %", 100 * *sum.share_of_ideal) : "-",
                           m == 0 ? "" : text_of(sum.answer)});
    table.add(std::move(row));
  }
  return table;
}

std::string pair_text(const MethodSummary& sum) {
  if (!sum.worst_pair || sum.worst_pair->bytes == 0) return "-";
  return fmt::format("{}>{} {}", sum.worst_pair->from, sum.worst_pair->to, bytes_text(sum.worst_pair->bytes));
}

Table cost_table(const ComparedRecordings& all) {
  const bool sized = all.comparison.has_bytes;
  std::vector<std::string> head = {"a step", "transfers"};
  if (sized) head.insert(head.end(), {"in nodes", "between", "worst pair", "peak"});
  if (all.machine.budget) head.insert(head.end(), {"misfits", "chunks"});
  Table table(std::move(head));
  for (std::size_t m = 0; m < all.summaries.size(); ++m) {
    const MethodSummary& sum = all.summaries[m];
    std::vector<std::string> row = {short_name(all.comparison.methods[m].method),
                                    three_digits(sum.transfers)};
    if (sized)
      row.insert(row.end(), {bytes_text(*sum.bytes_within), bytes_text(*sum.bytes_across), pair_text(sum),
                             format_bytes(*sum.peak_bytes)});
    if (all.machine.budget)
      row.insert(row.end(), {fmt::format("{}", *sum.steps_over_budget), fmt::format("{}", sum.most_chunks)});
    table.add(std::move(row));
  }
  return table;
}

Json json_of(const Spread& spread) {
  return {{"mean", spread.mean},
          {"median", spread.median},
          {"p95", spread.p95},
          {"p99", spread.p99},
          {"worst", spread.worst}};
}

Json method_json(const Method& method, const MethodSummary& sum) {
  Json step_ms, parts_ms, pair;
  if (sum.seconds)
    step_ms = {{"mean", sum.seconds->mean * 1e3},
               {"median", sum.seconds->median * 1e3},
               {"p95", sum.seconds->p95 * 1e3},
               {"p99", sum.seconds->p99 * 1e3},
               {"worst", sum.seconds->worst * 1e3}};
  for (std::size_t phase = 0; sum.seconds && phase < kSimPhases; ++phase)
    parts_ms[std::string(name_of(static_cast<SimPhase>(phase)))] = sum.parts[phase] * 1e3;
  if (sum.worst_pair)
    pair = {{"from", sum.worst_pair->from}, {"to", sum.worst_pair->to}, {"bytes", sum.worst_pair->bytes}};
  return {{"name", method.name},
          {"what", method.description()},
          {"max_over_mean", json_of(sum.max_over_mean)},
          {"step_ms", std::move(step_ms)},
          {"parts_ms", std::move(parts_ms)},
          {"speedup", or_null(sum.speedup)},
          {"share_of_ideal", or_null(sum.share_of_ideal)},
          {"rows", or_null(sum.rows)},
          {"bytes_within_nodes", or_null(sum.bytes_within)},
          {"bytes_between_nodes", or_null(sum.bytes_across)},
          {"worst_pair", std::move(pair)},
          {"transfers", sum.transfers},
          {"weight_bytes", or_null(sum.weight_bytes)},
          {"copy_bytes", or_null(sum.copy_bytes)},
          {"moved_bytes", sum.weight_bytes ? Json(sum.moved_bytes) : Json(nullptr)},
          {"peak_bytes", or_null(sum.peak_bytes)},
          {"steps_over_budget", or_null(sum.steps_over_budget)},
          {"chunks", sum.most_chunks},
          {"recomputed_fraction", sum.recomputed},
          {"verdict",
           {{"answer", name_of(sum.answer)},
            {"sentence", sum.sentence},
            {"break_even_tokens", or_null(sum.break_even_tokens)}}}};
}

}  // namespace

Json internal::json_of(const ComparedRecordings& all) {
  const Comparison& comparison = all.comparison;
  Json methods = Json::array();
  for (std::size_t m = 0; m < all.summaries.size(); ++m)
    methods.push_back(method_json(comparison.methods[m].method, all.summaries[m]));
  Json layers = Json::array();
  for (int row = 0; row < all.num_layers; ++row) layers.push_back(all.layers.number_of(row));
  return {{"ranks", all.machine.topology.num_ranks()},
          {"nodes", all.machine.topology.num_nodes()},
          {"ep_ranks", comparison.shape.ranks},
          {"groups", comparison.shape.groups},
          {"layers", std::move(layers)},
          {"num_experts", all.num_experts},
          {"top_k", or_null(all.top_k)},
          {"steps", comparison.num_steps},
          {"tokens_per_step", all.top_k ? Json(comparison.tokens_per_step) : Json(nullptr)},
          {"assignments_per_step", comparison.assignments_per_step},
          {"backward", all.machine.backward},
          {"budget", or_null(all.machine.budget)},
          {"placed_on", placed_on(all)},
          {"judged_on", judged_on(all)},
          {"same_data", comparison.same_data},
          {"independent_parts", comparison.independent_parts},
          {"methods", std::move(methods)},
          {"notes", all.notes}};
}

std::string to_json(const ComparedRecordings& all) {
  return internal::line_of(internal::json_of(all));
}

std::string to_text(const ComparedRecordings& all) {
  const Comparison& comparison = all.comparison;
  Page page;
  page.put("{} of {} experts{} on {} in {}, {}\n", counted(all.num_layers, "layer", "layers"),
           all.num_experts, all.top_k ? fmt::format(", top-{},", *all.top_k) : "",
           counted(all.machine.topology.num_ranks(), "rank", "ranks"),
           counted(all.machine.topology.num_nodes(), "node", "nodes"),
           all.machine.backward ? "forward and backward" : "forward");
  if (comparison.shape.groups > 1)
    page.put("{} groups of expert parallelism, of {} ranks each\n", comparison.shape.groups,
             comparison.shape.ranks);
  const std::int64_t size = std::llround(comparison.tokens_per_step);
  page.put("judged on {}, of {} each\n", judged_on(all),
           all.top_k ? counted(size, "token", "tokens") : counted(size, "assignment", "assignments"));
  page.put("placements made from {}\n\n", placed_on(all));
  page.put(step_table(all));
  page.put("\n");
  page.put(cost_table(all));
  page.put("\n");
  for (std::size_t m = 0; m < all.summaries.size(); ++m) {
    page.put("{}: {}\n", comparison.methods[m].method.name, comparison.methods[m].method.description());
    page.put("    {}\n", all.summaries[m].sentence);
  }
  return std::move(page).text();
}

std::string to_csv(const ComparedRecordings& all) {
  std::string text =
      "step,method,max_over_mean,seconds,rows,bytes_within_nodes,bytes_between_nodes,weight_bytes,moved_"
      "bytes,"
      "transfers,peak_bytes,chunks,recomputed_fraction,layers_as_planned,layers_given_up,load_least,"
      "load_median,load_p95,load_most\n";
  const auto known = [](bool is, double value) { return is ? fmt::format("{:.17g}", value) : std::string(); };
  const Comparison& comparison = all.comparison;
  for (int i = 0; i < comparison.num_steps; ++i)
    for (const MethodResult& method : comparison.methods) {
      const StepFigures& step = method.steps[static_cast<std::size_t>(i)];
      const bool sized = comparison.has_bytes;
      text += fmt::format(
          "{},{},{:.17g},{},{},{},{},{},{},{},{},{},{:.17g},{},{},{:.17g},{:.17g},{:.17g},{:.17g}\n",
          comparison.first_judged + i, method.method.name, step.max_over_mean,
          known(comparison.has_seconds, step.seconds), known(sized, static_cast<double>(step.rows)),
          known(sized, step.bytes_within), known(sized, step.bytes_across), known(sized, step.weight_bytes),
          known(sized, step.moved_bytes), step.transfers, sized ? fmt::format("{}", step.peak_bytes) : "",
          step.chunks, step.recomputed, step.layers_as_planned, step.layers_given_up, step.load_least,
          step.load_median, step.load_p95, step.load_most);
    }
  return text;
}

}  // namespace evenkeel
