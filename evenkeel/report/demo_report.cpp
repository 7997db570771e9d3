// Reports `evenkeel demo`.
#include <fmt/format.h>

#include "evenkeel/base/bytes.h"
#include "evenkeel/report/internal/figures.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

namespace {

using internal::Page;

void put_budgeted(Page& page, const Demo& demo) {
  Table table({"", "worst rank's peak", "chunks", "recomputed", "critical path", "bits equal"});
  const auto add = [&](const std::string& where, const CandidateFigures& of, const Accuracy& accuracy) {
    table.add({fmt::format("{}{}", internal::planner_of(of), where), format_bytes(of.worst_peak_bytes()),
               fmt::format("{}", of.chunks), internal::percent(of.recomputed_fraction),
               fmt::format("{:.1f} ms", of.critical_ms), internal::yes_or_no(accuracy.bitwise_equal)});
  };
  const DemoText& free = demo.texts.back();
  add(", no budget", free.contiguous.figures.candidates.front(), free.contiguous.accuracy.front());
  add(", no budget", free.contiguous.figures.candidates.back(), free.contiguous.accuracy.back());
  for (std::size_t i = 0; i < demo.budgeted.accuracy.size(); ++i)
    add(fmt::format(" in {}", format_bytes(demo.budget.bytes)), demo.budgeted.figures.candidates[i],
        demo.budgeted.accuracy[i]);
  page.put("\n  {} in half of ep's memory, where ep in one chunk could not run (least budget {})\n",
           free.name, format_bytes(free.contiguous.figures.reference.least_budget));
  page.put(table);
  page.put("  recomputed: assignments whose forward is computed again in backward\n");
}

void put_placements(Page& page, const Demo& demo) {
  Table table({"", "max/mean load", "all layers", "critical path", "transfers", "dispatched"});
  for (const DemoText& text : demo.texts) {
    const auto add = [&](const char* what, const CandidateFigures& of, const std::string& all_layers) {
      table.add({fmt::format("{}, {}", text.name, what), fmt::format("{:.3f}", of.balance.max_over_mean),
                 all_layers, fmt::format("{:.1f} ms", of.critical_ms), fmt::format("{}", of.transfers),
                 format_bytes(of.dispatch_bytes)});
    };
    const Figures& contiguous = text.contiguous.figures;
    const Figures& placed = text.placed.figures;
    add("contiguous", contiguous.reference, fmt::format("{:.3f}", text.contiguous_max_over_mean));
    add("placed", placed.reference, fmt::format("{:.3f}", text.placed_max_over_mean));
    add("contiguous + level", contiguous.candidates.back(), "");
    add("placed + level", placed.candidates.back(), "");
  }
  page.put("\n  homes chosen from other sequences of the same text (place, two-stage, fast)\n");
  page.put(table);
  page.put("  all layers: max/mean load of the same tokens, mean of all layers\n");
}

}  // namespace

std::string to_text(const Demo& demo) {
  const ExperimentSetup& setup = demo.setup;
  const PlannerOptions& planner = setup.candidates.back().planner;
  Page page;
  page.put("layer {} of {}: {}\nmin-segment {}; median of {}\n", demo.layer, demo.trace,
           internal::layer_line(setup.shape, setup.placement.num_ranks(), setup.backward),
           planner.min_segment, internal::counted(setup.rounds, "step", "steps"));
  page.put_lines(internal::costs_lines(*planner.costs) + "\n\n");
  std::vector<internal::Comparison> comparisons;
  for (const DemoText& text : demo.texts) comparisons.push_back({text.name, text.contiguous});
  internal::put_comparisons(page, comparisons, false);
  put_budgeted(page, demo);
  put_placements(page, demo);
  for (const internal::Comparison& each : comparisons) internal::put_loads(page, each);
  return std::move(page).text();
}

}  // namespace evenkeel
