#include "evenkeel/report/plan.h"

#include <cmath>
#include <optional>
#include <vector>

#include "evenkeel/base/bytes.h"
#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/internal/page.h"
#include "evenkeel/routing/imbalance.h"

namespace evenkeel {

namespace {

using internal::Json;

std::vector<std::int64_t> loads_of(const StepPlan& plan) {
  return {plan.rank_loads().begin(), plan.rank_loads().end()};
}

Json segments_of(const StepPlan& plan) {
  Json segments = Json::array();
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    Json of_expert = Json::array();
    for (const Segment& s : plan.segments(expert)) of_expert.push_back({s.rank.value(), s.begin, s.end});
    segments.push_back(std::move(of_expert));
  }
  return segments;
}

Json transfers_of(const StepPlan& plan) {
  Json transfers = Json::array();
  for (const Transfer& t : plan.transfers())
    transfers.push_back({t.expert.value(), t.from.value(), t.to.value()});
  return transfers;
}

Table transfer_table(const StepPlan& plan) {
  Table table({"expert", "from", "to", "assignments"});
  std::vector<std::int64_t> moved_to(plan.rank_loads().size(), 0);  // of the expert of the transfers at hand
  std::optional<ExpertId> at_hand;
  for (const Transfer& t : plan.transfers()) {
    if (at_hand != t.expert) {
      if (at_hand)
        for (const Segment& s : plan.segments(*at_hand)) moved_to[s.rank.offset()] = 0;
      for (const Segment& s : plan.segments(t.expert)) moved_to[s.rank.offset()] += s.size();
      at_hand = t.expert;
    }
    table.add({fmt::format("{}", t.expert.value()), fmt::format("{}", t.from.value()),
               fmt::format("{}", t.to.value()), fmt::format("{}", moved_to[t.to.offset()])});
  }
  return table;
}

Json predicted_of(const PredictedStep& step) {
  return {{"seconds", step.seconds},
          {"weight_bytes_across", step.weight_bytes_across},
          {"row_bytes_across", step.row_bytes_across ? Json(*step.row_bytes_across) : Json()}};
}

std::string on_links_text(const PredictedSteps& links) {
  const auto said = [](const PredictedStep& step) {
    return fmt::format("{:.3f} ms, {} of weights between nodes", 1e3 * step.seconds,
                       format_bytes(std::llround(step.weight_bytes_across)));
  };
  std::string text =
      fmt::format("predicted: {}\n  plain ep: {:.3f} ms", said(links.planned), 1e3 * links.plain.seconds);
  if (links.without_links)
    text += fmt::format("\n  planned as if links were alike: {}", said(*links.without_links));
  if (!links.planned.row_bytes_across)
    text += "\n  without the way of rows, since the loads do not say where tokens are";
  return text + "\n";
}

}  // namespace

std::string to_json(const PlannedStep& step) {
  const StepPlan& plan = step.plan;
  const Imbalance even = imbalance(plan.rank_loads());
  Json fields = {{"num_experts", plan.num_experts()},
                 {"num_ranks", plan.num_ranks()},
                 {"planner", step.planner},
                 {"spilled", plan.spilled()},
                 {"segments", segments_of(plan)},
                 {"rank_loads", plan.rank_loads()},
                 {"transfers", transfers_of(plan)},
                 {"max_over_mean", even.max_over_mean},
                 {"mean_over_max", even.mean_over_max},
                 {"relative_excess", even.relative_excess},
                 {"transfer_lower_bound", step.transfer_lower_bound},
                 {"plan_us", step.plan_us}};
  if (const auto& links = step.on_links) {
    fields["predicted"] = predicted_of(links->planned);
    fields["predicted_under_ep"] = predicted_of(links->plain);
    if (links->without_links) fields["predicted_without_links"] = predicted_of(*links->without_links);
  }
  return internal::line_of(fields, step.axes);
}

std::string to_text(const PlannedStep& step) {
  internal::Page page;
  const StepPlan& plan = step.plan;
  page.put("worst rank {:.3f}x the mean (plain ep: {:.3f}x), with {} (no fewer than {})\n",
           imbalance(plan.rank_loads()).max_over_mean, imbalance(step.plain.rank_loads()).max_over_mean,
           internal::counted(std::ssize(plan.transfers()), "weight transfer", "weight transfers"),
           step.transfer_lower_bound);
  page.put("{}: {} experts on {} ranks, {} assignments; planned in {:.1f} us\n", step.planner,
           plan.num_experts(), plan.num_ranks(), step.assignments, step.plan_us);
  page.put_lines((step.on_links ? on_links_text(*step.on_links) : "") + "\n");
  page.put_lines(load_picture(loads_of(step.plain), loads_of(plan), "load under ep",
                              fmt::format("load under {}", step.planner)));
  if (!plan.spilled()) return std::move(page).text();
  page.put("\n  weights that travel\n");
  page.put(transfer_table(plan));
  return std::move(page).text();
}

}  // namespace evenkeel
