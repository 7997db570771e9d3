#include "cli/memory_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/memory_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/model/parameters.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string grouped(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string rows_text(std::int64_t rows) {
  return rows >= most_rows ? "-" : grouped(rows);
}

std::string billions(std::int64_t weights) {
  return weights >= 100'000'000 ? fmt::format("{:.1f} B", static_cast<double>(weights) / 1e9)
                                : fmt::format("{:.1f} M", static_cast<double>(weights) / 1e6);
}

std::int64_t device_bytes_for(std::int64_t available, std::int64_t ratio_thousandths) {
  __extension__ using Wide = __int128;
  const Wide bytes = (Wide{available} * 1000 + ratio_thousandths - 1) / ratio_thousandths;
  return static_cast<std::int64_t>(std::min<Wide>(bytes, std::numeric_limits<std::int64_t>::max()));
}

bool is_of_devices(const Advice& advice) {
  using Change = Advice::Change;
  return advice.change == Change::tensor || advice.change == Change::pipeline ||
         advice.change == Change::expert || advice.change == Change::context ||
         advice.change == Change::devices;
}

// One change, as something to type.
std::string sentence(const Advice& advice, const MemoryReport& report) {
  using Change = Advice::Change;
  switch (advice.change) {
    case Change::chunks:
      return fmt::format("a bin of {} chunks (--bins)", advice.value);
    case Change::full_recompute:
      return "--recompute full";
    case Change::sharded_optimizer:
      return "optimizer states sharded over the data-parallel devices (--with sharded-optimizer)";
    case Change::fully_sharded:
      return "weights, gradients and optimizer states sharded over those devices (--with fsdp)";
    case Change::micro_batch:
      return fmt::format("--micro-batch {}", advice.value);
    case Change::sequence:
      return fmt::format("--seq {}, and rows received in proportion", advice.value);
    case Change::tensor:
    case Change::pipeline:
    case Change::expert:
    case Change::context:
    case Change::devices:
      return "--parallel " + degrees_text(advice.parallel);
    case Change::available_bytes:
      return fmt::format("a device of {}, with the largest bin",
                         format_bytes_up(device_bytes_for(advice.value, report.ratio_thousandths)));
  }
  return "";
}

std::vector<StaticItem> static_items(const MemoryReport& report, int stage) {
  if (!report.device.static_bytes) return report.memory.static_items(stage);
  return {{.name = "given", .weight_bytes = *report.device.static_bytes}};
}

Json json_of(const StageFit& stage, const MemoryReport& report) {
  return {{"stage", stage.stage},
          {"layers", report.memory.layers(stage.stage)},
          {"stored_copies", report.memory.setup().extra.every_layer
                                ? report.memory.micro_batches_in_flight(stage.stage)
                                : report.memory.stored_copies(stage.stage)},
          {"static_total", stage.static_bytes},
          {"active_total", stage.active_bytes},
          {"s_prime", stage.received},
          {"s_prime_max", stage.most_received >= most_rows ? Json(nullptr) : Json(stage.most_received)},
          {"least_chunks", stage.choice.least_chunks},
          {"chunks", stage.choice.chunks},
          {"fits", stage.fits}};
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

Json json_of_model(const MemoryReport& report) {
  const ModelDescription& model = report.memory.model();
  const ModelParameters parameters = model_parameters(model);
  return {{"family", model.family},
          {"parameters", parameters.total()},
          {"expert_parameters", parameters.layers.experts},
          {"layers", model.num_layers},
          {"moe_layers", model.num_moe_layers()},
          {"experts", model.experts.count},
          {"top_k", model.experts.top_k}};
}

Json json_of_setup(const MemoryReport& report) {
  const MemorySetup& setup = report.memory.setup();
  return {{"parallel", json_of_degrees(setup.parallel)},
          {"sequence", setup.sequence},
          {"micro_batch", setup.micro_batch},
          {"recompute", recompute_text(setup)},
          {"device", report.device_name.empty() ? Json(nullptr) : Json(report.device_name)},
          {"bytes",
           {{"activation", setup.bytes.activation},
            {"weight", setup.bytes.weight},
            {"gradient", setup.bytes.gradient},
            {"optimizer", setup.bytes.optimizer}}},
          {"terms", report.terms},
          {"cross_entropy", report.cross_entropy},
          {"received", report.given_received ? Json(*report.given_received) : Json(nullptr)},
          {"bins", report.device.bins},
          {"device_memory", report.device_bytes},
          {"available_ratio", static_cast<double>(report.ratio_thousandths) / 1000},
          {"borrowed_experts", setup.extra.borrowed_experts},
          {"allocation_granule", setup.extra.allocation_granule}};
}

// Of the layers of a stage.
std::string what_is_kept(const MemoryReport& report, int stage) {
  const MemorySetup& setup = report.memory.setup();
  if (!setup.extra.every_layer) {
    const std::int64_t copies = report.memory.stored_copies(stage);
    return copies == 1 ? "one copy of one MoE layer kept"
                       : fmt::format("{} copies of one MoE layer kept", copies);
  }
  const std::string batches =
      counted(report.memory.micro_batches_in_flight(stage), "micro-batch", "micro-batches");
  if (setup.full_recompute) return "inputs of its layers kept for " + batches;
  const std::string again = setup.selective.any() ? " but for " + recompute_text(setup) : "";
  return fmt::format("its layers kept{} for {}", again, batches);
}

void print_components(const MemoryReport& report) {
  const StageFit& stage = report.fit.tightest_stage();
  const auto share = [&](std::int64_t bytes) {
    return fmt::format("{:.1f} %", 100 * static_cast<double>(bytes) /
                                       static_cast<double>(std::max<std::int64_t>(stage.total_bytes(), 1)));
  };
  std::vector<std::string> head = {"", "weights", "bytes", "share"};
  if (report.paper) head.insert(head.begin() + 1, "from");
  Table table(std::move(head));
  const auto add = [&](std::string_view name, std::string_view source, std::int64_t weights,
                       std::int64_t bytes) {
    std::vector<std::string> row = {std::string(name), weights == 0 ? "" : billions(weights),
                                    format_bytes(bytes), share(bytes)};
    if (report.paper) row.insert(row.begin() + 1, std::string(source));
    table.add(std::move(row));
  };
  for (const StaticItem& item : static_items(report, stage.stage))
    add(item.name, report.device.static_bytes ? "--static-bytes" : "Eq. 1", item.weights, item.total_bytes());
  add("static", "", 0, stage.static_bytes);
  for (const ActiveItem& item : report.memory.active_items(stage.stage, stage.received, stage.choice.chunks))
    add(item.name, item.source, 0, item.bytes);
  add("active", "", 0, stage.active_bytes);
  put("  stage {}, {}, {} rows received in {}\n{}", stage.stage, what_is_kept(report, stage.stage),
      grouped(stage.received),
      stage.choice.chunks == 1 ? "one chunk" : fmt::format("{} chunks", stage.choice.chunks), table.text());
}

bool alike(const StageFit& a, const StageFit& b) {
  return a.static_bytes == b.static_bytes && a.active_bytes == b.active_bytes && a.fits == b.fits &&
         a.most_received == b.most_received && a.choice == b.choice;
}

void print_stages(const MemoryReport& report) {
  const std::vector<StageFit>& stages = report.fit.stages;
  Table table({"stages", "static", "active", "together", "rows that fit", "chunks", ""});
  for (std::size_t begin = 0, end = 0; begin < stages.size(); begin = end) {
    while (end < stages.size() && alike(stages[begin], stages[end])) ++end;
    const StageFit& stage = stages[begin];
    table.add({end - begin == 1 ? fmt::format("{}", begin) : fmt::format("{}-{}", begin, end - 1),
               format_bytes(stage.static_bytes), format_bytes(stage.active_bytes),
               format_bytes(stage.total_bytes()), rows_text(stage.most_received),
               fmt::format("{}", stage.choice.chunks),
               stage.fits                       ? "fits"
               : stage.choice.least_chunks == 0 ? "not one row fits"
                                                : fmt::format("needs {}", stage.choice.least_chunks)});
  }
  put("\n{}", table.text());
}

// How many devices the layout takes, of what, and what of the experts each holds.
void print_layout(const MemoryReport& report) {
  const Parallelism& parallel = report.memory.setup().parallel;
  put("{}: pp={} x tp={} x cp={} x dp={}\n", counted(parallel.devices(), "device", "devices"),
      parallel.pipeline, parallel.tensor, parallel.context, parallel.data);
  put("experts: ep={} x etp={}, {} on {}\n", parallel.expert, parallel.expert_tensor,
      counted(parallel.stage_devices() / parallel.expert_parts(), "copy", "copies"),
      counted(parallel.stage_devices(), "device a stage", "devices a stage"));
}

std::string verdict(const MemoryReport& report) {
  const StageFit& stage = report.fit.tightest_stage();
  return fmt::format("{}: {} of {} ({} of {}) on stage {} with {}", report.fit.fits ? "fits" : "does not fit",
                     format_bytes(stage.total_bytes()), format_bytes(report.device.available_bytes),
                     format_thousandths(report.ratio_thousandths), format_bytes(report.device_bytes),
                     stage.stage,
                     stage.choice.chunks == 1 ? "one chunk" : fmt::format("{} chunks", stage.choice.chunks));
}

void print_headline(const MemoryReport& report) {
  const StageFit& stage = report.fit.tightest_stage();
  put("{}\n", verdict(report));
  if (stage.choice.chunks > 1)
    put("chunks are what MemFine's and evenkeel's layers do; other trainers run one: --bins 1\n");
  const ModelDescription& model = report.memory.model();
  put("{}: {} weights, {} layers ({} with {} experts, top-{})\n", model.family,
      billions(model_parameters(model).total()), model.num_layers, model.num_moe_layers(),
      model.experts.count, model.experts.top_k);
  const std::int64_t worst = report.memory.worst_received();
  put("rows received by the fullest device for a sequence, before tp and cp divide them:\n");
  put("{} ({}); evenly {}, at worst {}\n\n", grouped(stage.received),
      !report.given_received    ? "the worst"
      : stage.received <= worst ? "as given"
                                : "as given, more than any routing sends",
      grouped(report.memory.even_received()), grouped(worst));
}

}  // namespace

std::string counted(std::int64_t number, const char* one, const char* many) {
  return fmt::format("{} {}", grouped(number), number == 1 ? one : many);
}

std::string degrees_text(const Parallelism& parallel) {
  std::string text;
  for (const auto& [name, degree] : degree_names)
    if (parallel.*degree > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, parallel.*degree);
  return text.empty() ? "dp=1" : text;
}

Json json_of_degrees(const Parallelism& parallel) {
  Json json = Json::object();
  for (const auto& [name, degree] : degree_names) json[std::string(name)] = parallel.*degree;
  return json;
}

void require_fit(const MemoryReport& report) {
  if (report.fit.fits) return;
  std::vector<std::string> changes;
  for (const Advice& each : report.advice) changes.push_back(sentence(each, report));
  throw Infeasible(
      fmt::format("{}; any one of these makes it fit: {}", verdict(report), fmt::join(changes, "; ")));
}

void print_json(const MemoryReport& report) {
  const StageFit& stage = report.fit.tightest_stage();
  Json fixed = Json::object();
  Json states = {{"weights", 0}, {"gradients", 0}, {"optimizer", 0}};
  std::int64_t weights = 0, gradients = 0, optimizer = 0;
  for (const StaticItem& item : static_items(report, stage.stage)) {
    fixed[std::string(item.name)] = item.total_bytes();
    weights += item.weight_bytes;
    gradients += item.gradient_bytes;
    optimizer += item.optimizer_bytes;
  }
  Json active = Json::object();
  for (const ActiveItem& item : report.memory.active_items(stage.stage, stage.received, stage.choice.chunks))
    active[std::string(item.name)] = item.bytes;
  Json stages = Json::array();
  for (const StageFit& each : report.fit.stages) stages.push_back(json_of(each, report));
  Json advice = Json::array();
  for (const Advice& each : report.advice) {
    advice.push_back({{"change", name_of(each.change)}, {"value", each.value}});
    if (is_of_devices(each)) advice.back()["parallel"] = json_of_degrees(each.parallel);
  }

  Json json = {{"devices", report.memory.setup().parallel.devices()},
               {"static_bytes", std::move(fixed)},
               {"active_bytes", std::move(active)},
               {"static_total", stage.static_bytes},
               {"active_total", stage.active_bytes},
               {"s_prime_max", stage.most_received >= most_rows ? Json(nullptr) : Json(stage.most_received)},
               {"chunks", stage.choice.chunks},
               {"fits", report.fit.fits},
               {"least_budget", report.least_budget ? Json(*report.least_budget) : Json(nullptr)},
               {"stage", stage.stage},
               {"s_prime", stage.received},
               {"s_prime_even", report.memory.even_received()},
               {"s_prime_worst", report.memory.worst_received()},
               {"least_chunks", stage.choice.least_chunks},
               {"promised", stage.choice.promised},
               {"available", report.device.available_bytes},
               {"longest_sequence", report.longest_sequence},
               {"advice", std::move(advice)},
               {"stages", std::move(stages)},
               {"static_by_state",
                report.device.static_bytes
                    ? Json(nullptr)
                    : Json{{"weights", weights}, {"gradients", gradients}, {"optimizer", optimizer}}},
               {"model", json_of_model(report)},
               {"setup", json_of_setup(report)}};
  if (report.history) json["history"] = json_of(*report.history);
  print_object(json);
}

void print_table(const MemoryReport& report) {
  print_layout(report);
  print_headline(report);
  print_components(report);
  print_stages(report);
  if (report.longest_sequence > 0)
    put("\nlongest sequence that fits: {}\n", grouped(report.longest_sequence));
  else
    put("\nno sequence fits\n");
  if (report.least_budget)
    put("least budget of the layer's arena for this shape: {}\n", format_bytes(*report.least_budget));
  if (!report.advice.empty()) {
    put("\nany one of these makes it fit:\n");
    for (const Advice& each : report.advice) put("  {}\n", sentence(each, report));
  }
  if (report.history) put("\nchunks by layer and step\n{}", picture(*report.history, report.first_step));
}

}  // namespace evenkeel::cli
