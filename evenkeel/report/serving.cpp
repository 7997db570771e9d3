#include "evenkeel/report/serving.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"
#include "evenkeel/report/internal/degrees.h"
#include "evenkeel/report/internal/html_page.h"
#include "evenkeel/report/internal/model_json.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/internal/page.h"

namespace evenkeel {

namespace {

// The number of cache tokens that fit if no layer keeps a cache.
constexpr std::int64_t no_end = std::numeric_limits<std::int64_t>::max();

using internal::counted;
using internal::grouped;
using internal::Json;
using internal::Page;

std::string verdict(const ServingReport& report) {
  const ServingStage& stage = report.fit.tightest_stage();
  const std::int64_t left = report.available_bytes - stage.total_bytes;
  return fmt::format(
      "{}: {} of {} ({} of {}) on stage {} at {} routing",
      left < 0 ? "does not fit by " + format_bytes(-left) : "fits with " + format_bytes(left) + " left",
      format_bytes(stage.total_bytes), format_bytes(report.available_bytes),
      format_thousandths(report.ratio_thousandths), format_bytes(report.device_bytes), stage.stage,
      report.fit.judged_case().name);
}

std::string case_text(const RoutingCase& routing) {
  return routing.chunks == 1 ? routing.name : fmt::format("{} ({})", routing.name, routing.chunks);
}

// Other ways of serving that would fit, if the judged one does not.
std::string what_fits(const ServingReport& report) {
  std::vector<std::string> names;
  for (const RoutingCase& each : report.fit.cases)
    if (each.fits) names.push_back(case_text(each));
  return names.empty() ? "no routing fits" : fmt::format("what fits: {}", fmt::join(names, "; "));
}

void put_layout(Page& page, const ServingModel& serving) {
  const Parallelism& parallel = serving.setup().parallel;
  page.put("{}: pp={} x tp={} x dp={}\n", counted(parallel.devices(), "device", "devices"), parallel.pipeline,
           parallel.tensor, parallel.data);
  page.put("experts: ep={} x etp={}, {} of {} on a device, top-{}\n", parallel.expert, parallel.expert_tensor,
           serving.local_experts(), serving.model().experts.count, serving.model().experts.top_k);
}

void put_components(Page& page, const ServingReport& report) {
  const ServingStage& stage = report.fit.tightest_stage();
  const ServingSetup& setup = report.serving.setup();
  Table table({fmt::format("stage {}", stage.stage), "bytes", "share"});
  const auto add = [&](std::string_view name, std::int64_t bytes) {
    table.add(
        {std::string(name), format_bytes(bytes),
         fmt::format("{:.1f} %", 100 * static_cast<double>(bytes) /
                                     static_cast<double>(std::max<std::int64_t>(1, stage.total_bytes)))});
  };
  for (const StaticItem& item : stage.weights) add(item.name, item.weight_bytes);
  add("weights", stage.weight_bytes);
  add("cache", stage.cache_bytes);
  if (stage.has_experts) add("workspace", report.fit.judged_case().workspace_bytes);
  page.put(table);
  page.put("\ncache: {} of {} tokens on each of {}\n", counted(setup.sequences, "sequence", "sequences"),
           grouped(setup.context), counted(setup.parallel.data, "replica", "replicas"));
  page.put("workspace: a step of {} tokens of each replica\n", grouped(setup.tokens));
}

Table case_table(const ServingReport& report) {
  Table table({"routing", "rows", "workspace", "borrowed", "together", "cache tokens", ""});
  for (const RoutingCase& each : report.fit.cases)
    table.add({case_text(each), grouped(each.rows), format_bytes(each.workspace_bytes),
               each.borrowed == 0 ? "" : format_bytes(each.borrowed_bytes), format_bytes(each.total_bytes),
               each.cache_tokens == no_end ? "-" : grouped(each.cache_tokens),
               each.fits ? "fits" : "too much"});
  return table;
}

Json tokens_or_null(std::int64_t tokens) {
  return tokens == no_end ? Json(nullptr) : Json(tokens);
}

Json json_of(const RoutingCase& routing) {
  return {{"routing", routing.name},
          {"rows", routing.rows},
          {"chunks", routing.chunks},
          {"borrowed_experts", routing.borrowed},
          {"workspace_bytes", routing.workspace_bytes},
          {"borrowed_bytes", routing.borrowed_bytes},
          {"total", routing.total_bytes},
          {"cache_tokens", tokens_or_null(routing.cache_tokens)},
          {"fits", routing.fits}};
}

Json json_of(const ServingStage& stage, const ServingReport& report) {
  Json weights = Json::object();
  for (const StaticItem& item : stage.weights) weights[std::string(item.name)] = item.weight_bytes;
  return {{"stage", stage.stage},
          {"layers", report.serving.layout().layers(stage.stage)},
          {"fits", stage.fits},
          {"total", stage.total_bytes},
          {"weight_bytes", std::move(weights)},
          {"weights_total", stage.weight_bytes},
          {"cache_bytes", stage.cache_bytes},
          {"cache_bytes_per_sequence", stage.sequence_bytes},
          {"workspace_bytes", stage.has_experts ? report.fit.judged_case().workspace_bytes : 0}};
}

Json setup_of(const ServingReport& report) {
  const ServingSetup& setup = report.serving.setup();
  return {{"parallel", internal::json_of(setup.parallel)},
          {"sequences", setup.sequences},
          {"context", setup.context},
          {"tokens", setup.tokens},
          {"redundant_experts", setup.redundant_experts},
          {"slots", internal::or_null(setup.slots)},
          {"bytes",
           {{"activation", setup.activation_bytes},
            {"weight", internal::or_null(setup.weight_bytes)},
            {"cache", internal::or_null(setup.cache_bytes)},
            {"expert", report.serving.expert_bytes()}}},
          {"quantization", report.serving.model().quantization},
          {"device", report.device_name.empty() ? Json(nullptr) : Json(report.device_name)},
          {"device_memory", report.device_bytes},
          {"available_ratio", static_cast<double>(report.ratio_thousandths) / 1000}};
}

}  // namespace

void require_fit(const ServingReport& report) {
  if (!report.fit.fits) throw Infeasible(fmt::format("{}; {}", verdict(report), what_fits(report)));
}

std::string to_text(const ServingReport& report) {
  Page page;
  put_layout(page, report.serving);
  page.put("{}\n", verdict(report));
  if (!report.fit.fits) page.put("{}\n", what_fits(report));
  page.put("\n");
  put_components(page, report);
  page.put("\n");
  page.put(case_table(report));
  page.put(
      "\nrows: of the fullest device in a step; cache tokens: of a replica, beside weights and workspace\n");
  for (const std::string& note : report.serving.notes()) page.put("note: {}\n", note);
  return std::move(page).text();
}

std::string to_json(const ServingReport& report) {
  Json stages = Json::array(), cases = Json::array();
  for (const ServingStage& each : report.fit.stages) stages.push_back(json_of(each, report));
  for (const RoutingCase& each : report.fit.cases) cases.push_back(json_of(each));
  Json json = json_of(report.fit.tightest_stage(), report);
  json.update({{"devices", report.serving.setup().parallel.devices()},
               {"available", report.available_bytes},
               {"routing", report.fit.judged_case().name},
               {"cache_tokens", tokens_or_null(report.fit.judged_case().cache_tokens)},
               {"local_experts", report.serving.local_experts()},
               {"cases", std::move(cases)},
               {"stages", std::move(stages)},
               {"notes", report.serving.notes()},
               {"model", internal::json_of(report.serving.model())},
               {"setup", setup_of(report)}});
  return internal::line_of(json);
}

std::string to_html(const ServingReport& report, const PageOrigin& origin) {
  const ServingStage& tightest = report.fit.tightest_stage();
  Json bars = Json::array(), rows = Json::array();
  for (const ServingStage& stage : report.fit.stages) {
    const std::int64_t workspace = stage.has_experts ? report.fit.judged_case().workspace_bytes : 0;
    bars.push_back(
        {{"label", stage.stage},
         {"parts",
          Json::array({{{"name", "weights"}, {"value", stage.weight_bytes}},
                       {{"name", "cache"}, {"value", stage.cache_bytes}},
                       {{"name", "workspace"}, {"value", workspace}},
                       {{"name", "borrowed experts"},
                        {"value", stage.has_experts ? report.fit.judged_case().borrowed_bytes : 0}}})}});
  }
  for (const RoutingCase& each : report.fit.cases) rows.push_back(json_of(each));
  Json page = internal::page_of("Memory of a device that serves " + report.serving.model().family, origin);
  using internal::column;
  page["sections"] = {
      {{"kind", "tiles"},
       {"id", "summary"},
       {"title", "Whether it fits"},
       {"verdict", Json::array({verdict(report), what_fits(report)})},
       {"tiles", Json::array({internal::tile("available", nullptr, report.available_bytes, "bytes"),
                              internal::tile("together", nullptr, tightest.total_bytes, "bytes"),
                              internal::tile("weights", nullptr, tightest.weight_bytes, "bytes"),
                              internal::tile("cache", nullptr, tightest.cache_bytes, "bytes")})}},
      {{"kind", "stack"},
       {"id", "stages"},
       {"title", "What a device of each stage holds"},
       {"caption", fmt::format("At {} routing.", report.fit.judged_case().name)},
       {"unit", "bytes"},
       {"x", "stage"},
       {"y", "bytes"},
       {"line", {{"y", report.available_bytes}, {"label", "available"}}},
       {"panels", Json::array({{{"name", ""}, {"bars", std::move(bars)}}})}},
      {{"kind", "table"},
       {"id", "routings"},
       {"title", "Routings"},
       {"columns",
        Json::array({column("routing", "routing"), column("chunks", "chunks"),
                     column("rows", "rows", "count"), column("workspace_bytes", "workspace", "bytes"),
                     column("borrowed_bytes", "borrowed", "bytes"), column("total", "together", "bytes"),
                     column("cache_tokens", "cache tokens", "count"), column("fits", "fits")})},
       {"rows", std::move(rows)}}};
  for (const std::string& note : report.serving.notes()) page["notes"].push_back(note);
  return internal::html_page(page);
}

}  // namespace evenkeel
