#include "evenkeel/report/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
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

// For each transfer, the number of assignments that its weights are used for.
std::vector<std::int64_t> moved_by_transfer(const StepPlan& plan) {
  std::vector<std::int64_t> moved;
  std::vector<std::int64_t> moved_to(plan.rank_loads().size(), 0);  // [P] assignments of the current expert
  std::optional<ExpertId> at_hand;
  for (const Transfer& t : plan.transfers()) {
    if (at_hand != t.expert) {
      if (at_hand)
        for (const Segment& s : plan.segments(*at_hand)) moved_to[s.rank.offset()] = 0;
      for (const Segment& s : plan.segments(t.expert)) moved_to[s.rank.offset()] += s.size();
      at_hand = t.expert;
    }
    moved.push_back(moved_to[t.to.offset()]);
  }
  return moved;
}

Table transfer_table(const StepPlan& plan) {
  Table table({"expert", "from", "to", "assignments"});
  const std::vector<std::int64_t> moved = moved_by_transfer(plan);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const Transfer& t = plan.transfers()[i];
    table.add({fmt::format("{}", t.expert.value()), fmt::format("{}", t.from.value()),
               fmt::format("{}", t.to.value()), fmt::format("{}", moved[i])});
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
    text += "\n  without the transfer of rows, since the loads do not say where tokens are";
  return text + "\n";
}

Json fields_of(const PlannedStep& step) {
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
  return fields;
}

// A column of the layer table. It is a figure of which a mean and a worst value are shown.
struct Figure {
  const char* key;
  const char* head;
  std::string (*shown)(double);
};

constexpr auto shown_count = [](double n) { return internal::fixed(n, n == std::floor(n) ? 0 : 1); };
constexpr auto shown_whole = [](double n) { return internal::fixed(n, 0); };
constexpr auto shown_ratio = [](double ratio) { return internal::fixed(ratio); };
constexpr auto shown_us = [](double us) { return fmt::format("{:.1f} us", us); };
constexpr auto shown_ms = [](double seconds) { return fmt::format("{:.3f} ms", 1e3 * seconds); };
constexpr auto shown_bytes = [](double bytes) { return format_bytes(std::llround(bytes)); };

constexpr std::array<Figure, 8> kFigures = {{
    {"max_over_mean", "max/mean", shown_ratio},
    {"max_over_mean_under_ep", "under ep", shown_ratio},
    {"transfers", "transfers", shown_count},
    {"spilled_assignments", "spilled", shown_whole},
    {"plan_us", "planned in", shown_us},
    {"weight_bytes", "weights", shown_bytes},
    {"predicted_seconds", "predicted", shown_ms},
    {"predicted_seconds_under_ep", "under ep", shown_ms},
}};

// The figures in the order of the columns. The last three are set only if step times on links are predicted.
std::vector<double> figures_of(const PlannedStep& step, std::optional<double> borrowed_bytes) {
  const std::vector<std::int64_t> moved = moved_by_transfer(step.plan);
  std::vector<double> figures = {
      imbalance(step.plan.rank_loads()).max_over_mean, imbalance(step.plain.rank_loads()).max_over_mean,
      static_cast<double>(moved.size()), std::accumulate(moved.begin(), moved.end(), 0.0), step.plan_us};
  if (const auto& links = step.on_links)
    figures.insert(figures.end(), {static_cast<double>(moved.size()) * borrowed_bytes.value(),
                                   links->planned.seconds, links->plain.seconds});
  return figures;
}

// One planner's figures for all layers, and the mean and the largest value of each figure.
struct PlannerFigures {
  std::string planner;
  std::vector<int> layers = {};
  std::vector<std::vector<double>> rows = {};
  std::vector<double> mean = {}, worst = {};
};

std::vector<PlannerFigures> by_planner(const PlannedLayers& all) {
  std::vector<PlannerFigures> planners;
  for (const auto& [layer, step] : all.steps) {
    if (planners.empty() || planners.back().planner != step.planner) planners.push_back({step.planner});
    planners.back().layers.push_back(layer);
    planners.back().rows.push_back(figures_of(step, all.borrowed_bytes));
  }
  for (PlannerFigures& planner : planners) {
    planner.mean = planner.worst = std::vector<double>(planner.rows.front().size());
    for (const std::vector<double>& row : planner.rows)
      for (std::size_t i = 0; i < row.size(); ++i) {
        planner.mean[i] += row[i];
        planner.worst[i] = std::max(planner.worst[i], row[i]);
      }
    for (double& figure : planner.mean) figure /= static_cast<double>(planner.rows.size());
  }
  return planners;
}

Json by_key(const std::vector<double>& figures) {
  Json json = Json::object();
  for (std::size_t i = 0; i < figures.size(); ++i) json[kFigures[i].key] = figures[i];
  return json;
}

Table layer_table(const PlannerFigures& planner) {
  const auto row = [](std::string name, const std::vector<double>& figures) {
    std::vector<std::string> cells = {std::move(name)};
    for (std::size_t i = 0; i < figures.size(); ++i) cells.push_back(kFigures[i].shown(figures[i]));
    return cells;
  };
  std::vector<std::string> head = {"layer"};
  for (std::size_t i = 0; i < planner.mean.size(); ++i) head.emplace_back(kFigures[i].head);
  Table table(std::move(head));
  for (std::size_t i = 0; i < planner.rows.size(); ++i)
    table.add(row(fmt::format("{}", planner.layers[i]), planner.rows[i]));
  table.add(row("mean", planner.mean));
  table.add(row("worst", planner.worst));
  return table;
}

}  // namespace

std::string to_json(const PlannedStep& step) {
  return internal::line_of(fields_of(step), step.axes);
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

std::string to_json(const PlannedLayers& layers) {
  const StepPlan& first = layers.steps.front().step.plan;
  Json planners = Json::array(), steps = Json::array();
  for (const PlannerFigures& each : by_planner(layers))
    planners.push_back(
        {{"planner", each.planner}, {"mean", by_key(each.mean)}, {"worst", by_key(each.worst)}});
  for (const auto& [layer, step] : layers.steps) {
    steps.push_back({{"layer", layer}});
    steps.back().update(fields_of(step));
  }
  return internal::line_of({{"num_experts", first.num_experts()},
                            {"num_ranks", first.num_ranks()},
                            {"planners", std::move(planners)},
                            {"layers", std::move(steps)}},
                           layers.axes);
}

std::string to_text(const PlannedLayers& layers) {
  internal::Page page;
  const PlannedStep& first = layers.steps.front().step;
  for (const PlannerFigures& each : by_planner(layers)) {
    page.put("{}: {} of {} experts on {} ranks\n\n", each.planner,
             internal::counted(std::ssize(each.rows), "layer", "layers"), first.plan.num_experts(),
             first.plan.num_ranks());
    page.put(layer_table(each));
    page.put("\n");
  }
  page.put("  max/mean: of the ranks' loads; spilled: assignments computed away from their home\n");
  return std::move(page).text();
}

}  // namespace evenkeel
