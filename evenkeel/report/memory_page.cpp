// The page of `evenkeel memory` for training.
#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/report/internal/html_page.h"
#include "evenkeel/report/internal/kept_items.h"
#include "evenkeel/report/memory.h"

namespace evenkeel {

namespace {

using internal::column;
using internal::Json;
using internal::tile;

constexpr std::size_t kMostSteps = 512;  // per heat map

Json summary_of(const MemoryReport& report) {
  const StageFit& stage = report.fit.tightest_stage();
  Json sentences = Json::array({internal::verdict_of(report)});
  const std::vector<std::string> advice = internal::advice_of(report);
  if (!advice.empty()) sentences.push_back("Any one of these makes it fit:");
  for (const std::string& each : advice) sentences.push_back(each);
  Json tiles = Json::array({tile("available", nullptr, report.device.available_bytes, "bytes"),
                            tile("together, on the tightest stage", nullptr, stage.total_bytes(), "bytes"),
                            tile("chunks", nullptr, stage.choice.chunks, "count"),
                            tile("longest sequence that fits", nullptr, report.longest_sequence, "count")});
  if (report.least_budget)
    tiles.push_back(tile("least budget of the layer's arena", nullptr, *report.least_budget, "bytes"));
  return {{"kind", "tiles"},
          {"id", "summary"},
          {"title", "Whether it fits"},
          {"verdict", std::move(sentences)},
          {"tiles", std::move(tiles)}};
}

Json stages_of(const MemoryReport& report) {
  Json bars = Json::array();
  for (const StageFit& stage : report.fit.stages)
    bars.push_back({{"label", stage.stage},
                    {"parts", Json::array({{{"name", "static"}, {"value", stage.static_bytes}},
                                           {{"name", "active"}, {"value", stage.active_bytes}}})}});
  return {{"kind", "stack"},
          {"id", "stages"},
          {"title", "What a device of each stage holds"},
          {"caption", "Static: weights, gradients and optimizer states. Active: what is kept for backward."},
          {"unit", "bytes"},
          {"x", "pipeline stage"},
          {"y", "bytes"},
          {"line", {{"y", report.device.available_bytes}, {"label", "available"}}},
          {"panels", Json::array({{{"name", ""}, {"bars", std::move(bars)}}})}};
}

Json items_of(const MemoryReport& report) {
  const StageFit& stage = report.fit.tightest_stage();
  const auto whole = static_cast<double>(std::max<std::int64_t>(stage.total_bytes(), 1));
  Json rows = Json::array();
  const auto add = [&](std::string_view name, const char* kind, std::int64_t bytes) {
    rows.push_back(
        {{"name", name}, {"kind", kind}, {"bytes", bytes}, {"share", static_cast<double>(bytes) / whole}});
  };
  for (const StaticItem& item : internal::static_items(report, stage))
    add(item.name, "static", item.total_bytes());
  for (const ActiveItem& item : report.memory.active_items(stage.stage, stage.received, stage.choice.chunks))
    add(item.name, "active", item.bytes);
  return {{"kind", "table"},
          {"id", "items"},
          {"title", fmt::format("Stage {}, the tightest", stage.stage)},
          {"columns", Json::array({column("name", "what"), column("kind", "kind"),
                                   column("bytes", "bytes", "bytes"), column("share", "share", "share")})},
          {"rows", std::move(rows)}};
}

Json history_of(const ChunkHistory& history) {
  const auto steps = static_cast<std::size_t>(history.steps());
  const std::size_t pool = internal::pool_of(steps, kMostSteps);
  Json labels = Json::array(), columns = Json::array(), values = Json::array();
  for (std::size_t step = 0; step < steps; step += pool)
    columns.push_back(history.first_step + static_cast<std::int64_t>(step));
  for (std::int64_t layer = 0; layer < history.layers; ++layer) {
    std::vector<double> chunks;
    for (std::int64_t step = 0; step < history.steps(); ++step)
      chunks.push_back(static_cast<double>(history.at(step, layer).chunks));
    labels.push_back(fmt::format("{}", layer));
    values.push_back(internal::drawn(internal::pooled(chunks, pool)));
  }
  return {
      {"kind", "heat"},
      {"id", "chunks"},
      {"title", "Chunks by layer and step"},
      {"caption",
       pool == 1 ? "As many as the rows of the step need."
                 : fmt::format("As many as the rows need; a column is {} steps, the most of them.", pool)},
      {"unit", "count"},
      {"row", "layer"},
      {"column", "step"},
      {"rows", std::move(labels)},
      {"columns", std::move(columns)},
      {"least", 1},
      {"panels", Json::array({{{"name", ""}, {"values", std::move(values)}}})}};
}

}  // namespace

std::string to_html(const MemoryReport& report, const PageOrigin& origin) {
  const ModelDescription& model = report.memory.model();
  Json page = internal::page_of("Memory of a device that trains " + model.family, origin);
  page["sections"] = {summary_of(report), stages_of(report), items_of(report)};
  if (report.history) {
    const ChunkHistory& history = *report.history;
    page["sections"].push_back(history_of(history));
    const Json& rows = page["sections"].back()["rows"];
    page["filters"] = {
        {"layers", rows},
        {"steps", Json::array({history.first_step, history.first_step + history.steps() - 1})}};
  }
  page["notes"] = notes_of(model);
  return internal::html_page(page);
}

}  // namespace evenkeel
