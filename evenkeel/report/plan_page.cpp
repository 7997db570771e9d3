// The page of `evenkeel plan`.
#include "evenkeel/report/internal/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "evenkeel/report/plan.h"
#include "evenkeel/routing/imbalance.h"

namespace evenkeel {

namespace {

using internal::column;
using internal::Json;
using internal::tile;

double max_over_mean_of(const StepPlan& plan) {
  return imbalance(plan.rank_loads()).max_over_mean;
}

Json picture_of(const PlannedStep& step, const std::string& title) {
  return {{"kind", "plan"},
          {"id", "plan"},
          {"title", title},
          {"caption",
           "What each rank computes. An arrow goes from the rank that lends weights to the one that "
           "borrows them."},
          {"unit", "count"},
          {"y", "assignments"},
          {"panels", Json::array({internal::plan_panel("ep", step.plain),
                                  internal::plan_panel(step.planner, step.plan)})}};
}

Json summary_of(const PlannedStep& step) {
  Json tiles =
      Json::array({tile("max/mean load", max_over_mean_of(step.plain), max_over_mean_of(step.plan), "ratio"),
                   tile("weight transfers", std::ssize(step.plain.transfers()),
                        std::ssize(step.plan.transfers()), "count"),
                   tile("no fewer transfers than", nullptr, step.transfer_lower_bound, "count"),
                   tile("planned in", nullptr, internal::drawn(step.plan_us), "us")});
  if (const auto& links = step.on_links) {
    tiles.push_back(tile("predicted time", 1e3 * links->plain.seconds, 1e3 * links->planned.seconds, "ms"));
    tiles.push_back(
        tile("weights between nodes", nullptr, internal::drawn(links->planned.weight_bytes_across), "bytes"));
  }
  return {{"kind", "tiles"}, {"id", "summary"},       {"title", "ep and " + step.planner},
          {"before", "ep"},  {"after", step.planner}, {"tiles", std::move(tiles)}};
}

Json page_of_plan(const std::string& title, const PlannedStep& step, const PageOrigin& origin) {
  Json page = internal::page_of(title, origin);
  page["notes"].push_back(
      fmt::format("{} experts on {} ranks", step.plan.num_experts(), step.plan.num_ranks()));
  return page;
}

// max/mean of every layer under each planner, with ep first.
Json curves_of(const PlannedLayers& layers) {
  std::vector<std::pair<std::string, Json>> points = {{"ep", Json::array()}};
  for (const auto& [layer, step] : layers.steps) {
    if (step.planner == layers.steps.front().step.planner)
      points.front().second.push_back({layer, internal::drawn(max_over_mean_of(step.plain))});
    if (step.planner == "ep") continue;
    if (points.back().first != step.planner) points.emplace_back(step.planner, Json::array());
    points.back().second.push_back({layer, internal::drawn(max_over_mean_of(step.plan))});
  }
  Json series = Json::array();
  for (auto& [name, of_planner] : points)
    series.push_back({{"name", name}, {"points", std::move(of_planner)}});
  return {{"kind", "curves"},
          {"id", "layers"},
          {"title", "Every layer"},
          {"x", {{"label", "layer"}, {"whole", true}}},
          {"y", {{"label", "max/mean load"}, {"unit", "ratio"}}},
          {"line", {{"y", 1}, {"label", "even"}}},
          {"panels", Json::array({{{"name", ""}, {"series", std::move(series)}}})}};
}

Json table_of(const PlannedLayers& layers) {
  Json rows = Json::array();
  for (const auto& [layer, step] : layers.steps) {
    Json row = {{"planner", step.planner},
                {"layer", layer},
                {"before", max_over_mean_of(step.plain)},
                {"after", max_over_mean_of(step.plan)},
                {"transfers", std::ssize(step.plan.transfers())},
                {"plan_us", step.plan_us}};
    if (const auto& links = step.on_links)
      row.update({{"ms_before", 1e3 * links->plain.seconds}, {"ms", 1e3 * links->planned.seconds}});
    rows.push_back(std::move(row));
  }
  return {
      {"kind", "table"},
      {"id", "all"},
      {"title", "All layers"},
      {"columns",
       Json::array({column("planner", "planner"), column("layer", "layer"),
                    column("before", "max/mean under ep", "ratio"), column("after", "max/mean", "ratio"),
                    column("transfers", "weight transfers", "count"), column("plan_us", "planned in", "us"),
                    column("ms_before", "predicted under ep", "ms"), column("ms", "predicted", "ms")})},
      {"rows", std::move(rows)}};
}

}  // namespace

Json internal::plan_panel(const std::string& name, const StepPlan& plan) {
  // [expert, borrowing rank] the lending rank. A rank gets an expert's weights from exactly one other rank.
  std::map<std::pair<ExpertId, RankId>, int> lender;
  Json transfers = Json::array();
  for (const Transfer& t : plan.transfers()) {
    lender[{t.expert, t.to}] = t.from.value();
    transfers.push_back({{"from", t.from.value()},
                         {"to", t.to.value()},
                         {"what", fmt::format("expert {}", t.expert.value())}});
  }
  // [rank], by owner
  std::vector<std::map<int, std::int64_t>> computed(static_cast<std::size_t>(plan.num_ranks()));
  for (ExpertId expert : indices<ExpertId>(plan.num_experts()))
    for (const Segment& segment : plan.segments(expert)) {
      const auto lent = lender.find({expert, segment.rank});
      computed[segment.rank.offset()][lent == lender.end() ? segment.rank.value() : lent->second] +=
          segment.size();
    }
  Json ranks = Json::array();
  for (RankId rank : indices<RankId>(plan.num_ranks())) {
    Json parts = Json::array();
    auto& by_owner = computed[rank.offset()];
    parts.push_back({{"owner", rank.value()}, {"value", by_owner[rank.value()]}});
    for (const auto& [owner, value] : by_owner)
      if (owner != rank.value()) parts.push_back({{"owner", owner}, {"value", value}});
    ranks.push_back({{"rank", rank.value()}, {"parts", std::move(parts)}});
  }
  return {{"name", name}, {"ranks", std::move(ranks)}, {"transfers", std::move(transfers)}};
}

std::string to_html(const PlannedStep& step, const PageOrigin& origin) {
  Json page = page_of_plan("One step's plan", step, origin);
  page["sections"] = {summary_of(step), picture_of(step, "The plan")};
  return internal::html_page(page);
}

std::string to_html(const PlannedLayers& layers, const PageOrigin& origin) {
  const PlannedLayer& worst = *std::ranges::max_element(layers.steps, {}, [](const PlannedLayer& each) {
    return std::pair(max_over_mean_of(each.step.plain), each.step.planner != "ep");
  });
  Json page = page_of_plan("A step's plan for every layer", worst.step, origin);
  page["sections"] = {curves_of(layers), table_of(layers),
                      picture_of(worst.step, fmt::format("Layer {}, the most uneven under ep", worst.layer))};
  return internal::html_page(page);
}

}  // namespace evenkeel
