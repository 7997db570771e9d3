#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"
#include "evenkeel/report/internal/kept_items.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/internal/page.h"
#include "evenkeel/report/memory.h"
#include "evenkeel/training_memory/names.h"

namespace evenkeel {

namespace {

using internal::counted;
using internal::grouped;
using internal::Page;

std::string rows_text(std::int64_t rows) {
  return rows >= most_rows ? "-" : grouped(rows);
}

std::string chunks_text(std::int64_t chunks) {
  return chunks == 1 ? "one chunk" : fmt::format("{} chunks", chunks);
}

std::string weights_text(std::int64_t weights) {
  const auto number = static_cast<double>(weights);
  return weights >= 100'000'000 ? internal::fixed(number / 1e9, 1) + " B"
                                : internal::fixed(number / 1e6, 1) + " M";
}

std::int64_t device_bytes_for(std::int64_t available, std::int64_t ratio_thousandths) {
  __extension__ using Wide = __int128;
  const Wide bytes = (Wide{available} * 1000 + ratio_thousandths - 1) / ratio_thousandths;
  return static_cast<std::int64_t>(std::min<Wide>(bytes, std::numeric_limits<std::int64_t>::max()));
}

// The change as a sentence with the options to type.
std::string sentence(const Advice& advice, std::int64_t ratio_thousandths) {
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
    case Change::available_bytes:
      return fmt::format("a device of {}, with the largest bin",
                         format_bytes_up(device_bytes_for(advice.value, ratio_thousandths)));
    default:
      return "--parallel " + to_text(advice.parallel);
  }
}

}  // namespace

namespace internal {

std::vector<std::string> advice_of(const MemoryReport& report) {
  std::vector<std::string> all;
  for (const Advice& each : report.advice) all.push_back(sentence(each, report.ratio_thousandths));
  return all;
}

std::string verdict_of(const MemoryReport& report) {
  const StageFit& stage = report.fit.tightest_stage();
  return fmt::format("{}: {} of {} ({} of {}) on stage {} with {}", report.fit.fits ? "fits" : "does not fit",
                     format_bytes(stage.total_bytes()), format_bytes(report.device.available_bytes),
                     format_thousandths(report.ratio_thousandths), format_bytes(report.device_bytes),
                     stage.stage, chunks_text(stage.choice.chunks));
}

}  // namespace internal

namespace {

// Prints the devices of the layout, and which part of the experts each device holds.
void put_layout(Page& page, const Parallelism& parallel) {
  page.put("{}: pp={} x tp={} x cp={} x dp={}\n", counted(parallel.devices(), "device", "devices"),
           parallel.pipeline, parallel.tensor, parallel.context, parallel.data);
  page.put("experts: ep={} x etp={}, {} on {}\n", parallel.expert, parallel.expert_tensor,
           counted(parallel.stage_devices() / parallel.expert_parts(), "copy", "copies"),
           counted(parallel.stage_devices(), "device a stage", "devices a stage"));
}

void put_headline(Page& page, const MemoryReport& report) {
  const StageFit& stage = report.fit.tightest_stage();
  page.put("{}\n", internal::verdict_of(report));
  if (stage.choice.chunks > 1)
    page.put("chunks are a feature of MemFine's and evenkeel's layers; for other trainers use --bins 1\n");
  const ModelDescription& model = report.memory.model();
  page.put("{}: {} weights, {} layers ({} with {} experts, top-{})\n", model.family,
           weights_text(model.parameters()), model.num_layers, model.num_moe_layers(), model.experts.count,
           model.experts.top_k);
  if (const auto more = std::ssize(model.prediction_layers); more > 0)
    page.put("{} of multi-token prediction besides, {}\n", counted(more, "layer", "layers"),
             report.memory.setup().extra.prediction ? "counted on the last stage (--without prediction)"
                                                    : "not counted");
  for (const std::string& note : notes_of(model)) page.put("note: {}\n", note);
  const std::int64_t worst = report.memory.worst_received();
  page.put("rows received by the fullest device for a sequence, before tp and cp divide them:\n");
  page.put("{} ({}); evenly {}, at worst {}\n\n", grouped(stage.received),
           !report.given_received    ? "the worst"
           : stage.received <= worst ? "as given"
                                     : "as given, more than any routing sends",
           grouped(report.memory.even_received()), grouped(worst));
}

// Which tensors the layers of a stage keep.
std::string kept_text(const MemoryModel& memory, int stage) {
  const MemorySetup& setup = memory.setup();
  if (!setup.extra.every_layer) {
    const std::int64_t copies = memory.stored_copies(stage);
    return copies == 1 ? "one copy of one MoE layer kept"
                       : fmt::format("{} copies of one MoE layer kept", copies);
  }
  const std::string batches = counted(memory.micro_batches_in_flight(stage), "micro-batch", "micro-batches");
  if (setup.full_recompute) return "inputs of its layers kept for " + batches;
  const std::string again = setup.selective.any() ? " but for " + recompute_text(setup) : "";
  return fmt::format("its layers kept{} for {}", again, batches);
}

void put_components(Page& page, const MemoryReport& report) {
  const StageFit& stage = report.fit.tightest_stage();
  std::vector<std::string> head = {"", "weights", "bytes", "share"};
  if (report.paper) head.insert(head.begin() + 1, "from");
  Table table(std::move(head));
  const auto add = [&](std::string_view name, std::string_view source, std::int64_t weights,
                       std::int64_t bytes) {
    const double share = 100 * static_cast<double>(bytes) /
                         static_cast<double>(std::max<std::int64_t>(stage.total_bytes(), 1));
    std::vector<std::string> row = {std::string(name), weights == 0 ? "" : weights_text(weights),
                                    format_bytes(bytes), fmt::format("{:.1f} %", share)};
    if (report.paper) row.insert(row.begin() + 1, std::string(source));
    table.add(std::move(row));
  };
  for (const StaticItem& item : internal::static_items(report, stage))
    add(item.name, report.device.static_bytes ? "--static-bytes" : "Eq. 1", item.weights, item.total_bytes());
  add("static", "", 0, stage.static_bytes);
  for (const ActiveItem& item : report.memory.active_items(stage.stage, stage.received, stage.choice.chunks))
    add(item.name, item.source, 0, item.bytes);
  add("active", "", 0, stage.active_bytes);
  page.put("  stage {}, {}, {} rows received in {}\n", stage.stage, kept_text(report.memory, stage.stage),
           grouped(stage.received), chunks_text(stage.choice.chunks));
  page.put(table);
}

bool alike(const StageFit& a, const StageFit& b) {
  return a.static_bytes == b.static_bytes && a.active_bytes == b.active_bytes && a.fits == b.fits &&
         a.most_received == b.most_received && a.choice == b.choice;
}

Table stage_table(const std::vector<StageFit>& stages) {
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
  return table;
}

// The first step of each shown block. If there are few steps, each is a block; otherwise blocks are sized to
// fit 100 columns.
std::vector<std::int64_t> block_begins(const ChunkHistory& history) {
  constexpr std::int64_t few = 18;  // blocks of at most three characters each that fit after the layer's name
  const std::int64_t steps = history.steps();
  const std::int64_t digits = std::ssize(fmt::format("{}", history.first_step + steps - 1));
  const std::int64_t blocks =
      steps <= few ? steps : std::min(few, 91 / (2 + std::max<std::int64_t>(digits, 3)));
  std::vector<std::int64_t> begins;
  for (std::int64_t block = 0; block <= blocks; ++block) begins.push_back(block * steps / blocks);
  return begins;
}

double mean_chunks(const ChunkHistory& history, std::int64_t begin, std::int64_t end,
                   std::int64_t begin_layer, std::int64_t end_layer) {
  std::int64_t sum = 0;
  for (std::int64_t step = begin; step < end; ++step)
    for (std::int64_t layer = begin_layer; layer < end_layer; ++layer) sum += history.at(step, layer).chunks;
  return static_cast<double>(sum) / static_cast<double>((end - begin) * (end_layer - begin_layer));
}

// One row for each layer and one column for each step. If there are many steps, a column is the mean over a
// block of steps.
Table chunk_table(const ChunkHistory& history) {
  const std::vector<std::int64_t> begins = block_begins(history);
  const std::size_t blocks = begins.size() - 1;
  std::vector<std::string> head = {"layer"};
  for (std::size_t block = 0; block < blocks; ++block)
    head.push_back(fmt::format("{}", history.first_step + begins[block]));
  Table table(std::move(head));
  const auto add = [&](const std::string& name, std::int64_t begin_layer, std::int64_t end_layer,
                       int places) {
    std::vector<std::string> row = {name};
    for (std::size_t block = 0; block < blocks; ++block)
      row.push_back(internal::fixed(
          mean_chunks(history, begins[block], begins[block + 1], begin_layer, end_layer), places));
    table.add(std::move(row));
  };
  const int places = std::cmp_equal(blocks, history.steps()) ? 0 : 1;
  for (std::int64_t layer = 0; layer < history.layers; ++layer)
    add(fmt::format("{}", layer), layer, layer + 1, places);
  add("mean", 0, history.layers, 1);
  return table;
}

}  // namespace

void require_fit(const MemoryReport& report) {
  if (report.fit.fits) return;
  throw Infeasible(fmt::format("{}; any one of these makes it fit: {}", internal::verdict_of(report),
                               fmt::join(internal::advice_of(report), "; ")));
}

std::vector<std::string> notes_of(const ModelDescription& model) {
  std::vector<std::string> notes = model.notes;
  const auto is_other = [](const Weight& weight) { return weight.kind == WeightKind::other; };
  if (const auto first = std::ranges::find_if(model.weights, is_other); first != model.weights.end())
    notes.push_back(
        fmt::format("{} of unknown kind ({}, ...): {} weights, counted whole on each device of the first "
                    "stage (`other`), without their activations",
                    counted(std::ranges::count_if(model.weights, is_other), "tensor is", "tensors are"),
                    first->name, weights_text(model.parameters(WeightKind::other))));
  const auto is_state = [](const CacheShape& cache) { return cache.unit == CacheShape::Unit::state; };
  if (std::ranges::any_of(model.caches,
                          [&](const auto& layer) { return std::ranges::any_of(layer, is_state); }))
    notes.emplace_back(
        "activations of layers with linear attention or a state space are not modelled; they are counted as "
        "those of attention");
  return notes;
}

std::string to_text(const MemoryReport& report) {
  Page page;
  put_layout(page, report.memory.setup().parallel);
  put_headline(page, report);
  put_components(page, report);
  page.put("\n");
  page.put(stage_table(report.fit.stages));
  if (report.longest_sequence > 0)
    page.put("\nlongest sequence that fits: {}, in up to {}\n", grouped(report.longest_sequence),
             chunks_text(report.device.bins.back()));
  else
    page.put("\nno sequence fits\n");
  if (report.least_budget)
    page.put("least budget of the layer's arena for this shape: {}\n", format_bytes(*report.least_budget));
  if (!report.advice.empty()) page.put("\nany one of these makes it fit:\n");
  for (const std::string& sentence : internal::advice_of(report)) page.put("  {}\n", sentence);
  if (!report.advice.empty() && !report.device.static_bytes)
    page.put("all layouts of as many devices: --gpus {}\n", report.memory.setup().parallel.devices());
  if (report.history) {
    page.put("\nchunks by layer and step\n");
    page.put(chunk_table(*report.history));
  }
  return std::move(page).text();
}

}  // namespace evenkeel
