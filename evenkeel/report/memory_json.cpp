#include "evenkeel/report/internal/degrees.h"
#include "evenkeel/report/internal/kept_items.h"
#include "evenkeel/report/internal/model_json.h"
#include "evenkeel/report/memory.h"

namespace evenkeel {

namespace {

using internal::Json;
using internal::or_null;

Json rows_or_null(std::int64_t rows) {
  return rows >= most_rows ? Json(nullptr) : Json(rows);
}

// Bytes of the weights on a device, in the types of their tensors.
Json weights_on(const MemoryModel& memory, int stage) {
  Json kinds = Json::object();
  for (const StaticItem& item : memory.static_items(stage))
    kinds[std::string(item.name)] = {{"numbers", item.weights}, {"bytes", item.stored_bytes}};
  return kinds;
}

Json json_of(const StageFit& stage, const MemoryModel& memory) {
  return {{"stage", stage.stage},
          {"layers", memory.layers(stage.stage)},
          {"stored_copies", memory.setup().extra.every_layer ? memory.micro_batches_in_flight(stage.stage)
                                                             : memory.stored_copies(stage.stage)},
          {"weights", weights_on(memory, stage.stage)},
          {"static_total", stage.static_bytes},
          {"active_total", stage.active_bytes},
          {"s_prime", stage.received},
          {"s_prime_max", rows_or_null(stage.most_received)},
          {"least_chunks", stage.choice.least_chunks},
          {"chunks", stage.choice.chunks},
          {"fits", stage.fits}};
}

Json json_of(const Advice& advice) {
  Json json = {{"change", name_of(advice.change)}, {"value", advice.value}};
  if (internal::is_of_devices(advice)) json["parallel"] = internal::json_of(advice.parallel);
  return json;
}

template <class Values, class... More>
Json list_of(const Values& values, const More&... more) {
  Json list = Json::array();
  for (const auto& each : values) list.push_back(json_of(each, more...));
  return list;
}

Json json_of(const ChunkHistory& history) {
  Json steps = Json::array();
  std::int64_t beyond = 0;
  for (std::int64_t step = 0; step < history.steps(); ++step) {
    Json layers = Json::array();
    for (std::int64_t layer = 0; layer < history.layers; ++layer) {
      layers.push_back(history.at(step, layer).chunks);
      beyond += history.at(step, layer).promised ? 0 : 1;
    }
    steps.push_back(std::move(layers));
  }
  return {{"chunks", std::move(steps)}, {"not_promised", beyond}};
}

Json setup_of(const MemoryReport& report) {
  const MemorySetup& setup = report.memory.setup();
  return {{"parallel", internal::json_of(setup.parallel)},
          {"sequence", setup.sequence},
          {"micro_batch", setup.micro_batch},
          {"recompute", recompute_text(setup)},
          {"device", report.device_name.empty() ? Json(nullptr) : Json(report.device_name)},
          {"bytes",
           {{"activation", setup.bytes.activation},
            {"weight", setup.bytes.weight},
            {"gradient", setup.bytes.gradient},
            {"optimizer", setup.bytes.optimizer}}},
          {"terms", names_of(setup.extra)},
          {"cross_entropy", report.cross_entropy},
          {"attention", setup.unfused_attention ? "unfused" : "fused"},
          {"pipeline_layout", report.pipeline_layout.empty() ? Json(nullptr) : Json(report.pipeline_layout)},
          {"paper", report.paper},
          {"static_bytes", or_null(report.device.static_bytes)},
          {"received", or_null(report.given_received)},
          {"bins", report.device.bins},
          {"device_memory", report.device_bytes},
          {"available_ratio", static_cast<double>(report.ratio_thousandths) / 1000},
          {"borrowed_experts", setup.extra.borrowed_experts},
          {"allocation_granule", setup.extra.allocation_granule}};
}

Json by_state(const std::vector<StaticItem>& items) {
  std::int64_t weights = 0, gradients = 0, optimizer = 0;
  for (const StaticItem& item : items) {
    weights += item.weight_bytes;
    gradients += item.gradient_bytes;
    optimizer += item.optimizer_bytes;
  }
  return {{"weights", weights}, {"gradients", gradients}, {"optimizer", optimizer}};
}

}  // namespace

MemoryReport memory_report(const MemoryModel& memory, const DeviceMemory& device, ReceivedRows received) {
  MemoryReport report{.memory = memory,
                      .device = device,
                      .given_received = received,
                      .fit = fit(memory, received, device),
                      .longest_sequence = longest_sequence(memory, received, device)};
  if (!report.fit.fits) report.advice = what_would_fit(memory, received, device);
  return report;
}

std::string to_json(const MemoryReport& report) {
  const MemoryModel& memory = report.memory;
  const StageFit& stage = report.fit.tightest_stage();
  const std::vector<StaticItem> static_items = internal::static_items(report, stage);
  Json fixed = Json::object(), active = Json::object();
  for (const StaticItem& item : static_items) fixed[std::string(item.name)] = item.total_bytes();
  for (const ActiveItem& item : memory.active_items(stage.stage, stage.received, stage.choice.chunks))
    active[std::string(item.name)] = item.bytes;
  Json json = {{"devices", memory.setup().parallel.devices()},
               {"static_bytes", std::move(fixed)},
               {"active_bytes", std::move(active)},
               {"static_total", stage.static_bytes},
               {"active_total", stage.active_bytes},
               {"s_prime_max", rows_or_null(stage.most_received)},
               {"chunks", stage.choice.chunks},
               {"fits", report.fit.fits},
               {"least_budget", or_null(report.least_budget)},
               {"stage", stage.stage},
               {"s_prime", stage.received},
               {"s_prime_even", memory.even_received()},
               {"s_prime_worst", memory.worst_received()},
               {"least_chunks", stage.choice.least_chunks},
               {"promised", stage.choice.promised},
               {"available", report.device.available_bytes},
               {"longest_sequence", report.longest_sequence},
               {"advice", list_of(report.advice)},
               {"stages", list_of(report.fit.stages, memory)},
               {"static_by_state", report.device.static_bytes ? Json(nullptr) : by_state(static_items)},
               {"model", internal::json_of(memory.model())},
               {"notes", notes_of(memory.model())},
               {"setup", setup_of(report)}};
  if (report.history) json["history"] = json_of(*report.history);
  return internal::line_of(json);
}

}  // namespace evenkeel
