// Reads load traces of UltraEP's profiler (docs/formats.md#ultraep).

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::internal {

namespace {

constexpr const char* schema_name = "ultra_ep_trace_v1";
constexpr const char* loads_name = "pre_logical_loads";
constexpr const char* layers_name = "layers";
constexpr const char* microbatches_name = "microbatches";
// UltraEP allows this many layers more than configured, for trainers that count from 1.
constexpr int spare_layers = 3;

// The name of the trace that a manifest or a chunk belongs to.
std::string trace_name(const JsonField& metadata) {
  const JsonField said = metadata["schema"];
  if (*said != schema_name) said.fail("is {}; only \"{}\" is read", said->dump(), schema_name);
  return metadata["trace_id"]->dump();
}

IntArray column(const ArrayFile& chunk, const char* name, std::int64_t records) {
  IntArray values = read_integers(chunk, name);
  if (values.shape != std::vector{records})
    throw parse_error(chunk.name(), name, "shape {} is not [{} records]", to_text(values.shape), records);
  return values;
}

// Adds up the loads of all records, or with keep_steps those of each micro-batch of each trace.
class TraceSum {
 public:
  explicit TraceSum(bool keep_steps) : keep_steps_(keep_steps) {}

  void add(const ArrayFile& chunk) {
    const auto text = chunk.metadata().find("metadata");
    if (text == chunk.metadata().end())
      throw ParseError(chunk.name(), "metadata", "is missing, or not a text");
    const std::string where = chunk.name() + ": metadata";
    const JsonDocument json = parse_json(text->second, where);
    const JsonField metadata(json, where);
    const std::string name = trace_name(metadata);
    require_same_model(metadata, chunk.name());
    Trace& trace = traces_[name];
    trace.chunks.insert(metadata["chunk_id"].integer());

    const IntArray loads = read_integers(chunk, loads_name);
    if (loads.shape.size() != 2 || loads.shape[1] != num_experts_)
      throw parse_error(chunk.name(), loads_name, "shape {} is not [records, {} experts]",
                        to_text(loads.shape), num_experts_);
    const IntArray layers = column(chunk, layers_name, loads.shape[0]);
    const IntArray microbatches = column(chunk, microbatches_name, loads.shape[0]);
    const std::int64_t last_layer = num_layers_ + spare_layers - 1;
    for (std::size_t i = 0; i < layers.values.size(); ++i) {
      const std::int64_t microbatch = microbatches.values[i];
      if (layers.values[i] < 0 || layers.values[i] > last_layer)
        throw parse_error(chunk.name(), layers_name, "element {} is {}, outside 0..{}", i, layers.values[i],
                          last_layer);
      const int layer = static_cast<int>(layers.values[i]);
      if (!trace.records.emplace(microbatch, layer).second)
        throw parse_error(chunk.name(), microbatches_name,
                          "element {}: layer {} of micro-batch {} of {} appears twice", i, layer, microbatch,
                          name);
      ++records_of_[layer];
      add_record(loads, i, keep_steps_ ? steps_[{name, microbatch}][layer] : steps_[{}][layer], chunk.name());
    }
  }

  // Checks a whole folder, after its chunks were added.
  void require_all_chunks(const std::vector<std::string>& manifests, const std::string& folder) {
    for (const auto& [name, trace] : traces_)
      if (*trace.chunks.begin() != 0 || *trace.chunks.rbegin() != std::ssize(trace.chunks) - 1)
        throw parse_error(folder, "",
                          "has {} chunks of trace {}, numbered {}..{}; all chunks from 0 on are needed",
                          trace.chunks.size(), name, *trace.chunks.begin(), *trace.chunks.rbegin());
    for (const std::string& path : manifests) {
      const auto json = read_json(ByteSource(path));
      const JsonField manifest(json, path);
      const std::string name = trace_name(manifest);
      const JsonField said = manifest["chunks"];
      const auto there = std::ssize(traces_[name].chunks);
      // UltraEP writes the manifest with 0 chunks when a run begins, and again when it ends.
      if (said.integer() == 0 && there > 0)
        notes_.push_back(
            fmt::format("trace {} has not ended; read so far: {}", name, counted(there, "chunk")));
      else if (said.integer() != there)
        said.fail("is {}, but the folder has {} of {}", said.integer(), counted(there, "chunk file"), name);
    }
  }

  FoundRouting found(const std::string& file) && {
    if (steps_.empty()) throw ParseError(file, "", "has no UltraEP record");
    IntArray counts{.shape = {0, std::ssize(records_of_), num_experts_}, .values = {}};
    const Steps::value_type* incomplete = nullptr;  // the first incomplete step
    for (const auto& step : steps_) {
      if (step.second.size() < records_of_.size()) {
        if (incomplete == nullptr) incomplete = &step;
        continue;
      }
      ++counts.shape[0];
      for (const auto& [layer, loads] : step.second)
        counts.values.insert(counts.values.end(), loads.begin(), loads.end());
    }
    note_missing(counts.shape[0], incomplete, file);
    if (!keep_steps_) counts.shape.erase(counts.shape.begin());
    FoundRouting found = found_counts(std::move(counts), file, loads_name, CountRows::moe_layers);
    std::get<FoundCounts>(found.content).layers = layer_numbers();
    found.kind = "statistics";
    found.format = "ultraep";
    found.notes = std::move(notes_);
    return found;
  }

 private:
  struct Trace {
    std::set<std::int64_t> chunks = {};
    std::set<std::pair<std::int64_t, int>> records = {};  // micro-batch and layer
  };
  using Layers = std::map<int, std::vector<std::int64_t>>;               // [E] of each
  using Steps = std::map<std::pair<std::string, std::int64_t>, Layers>;  // by trace and micro-batch

  void require_same_model(const JsonField& metadata, const std::string& file) {
    const int layers = metadata["num_layers"].integer(1, max_layers - spare_layers);
    const int experts = metadata["num_global_logical_experts"].integer(1, max_trace_experts);
    if (first_.empty()) {
      first_ = file;
      num_layers_ = layers;
      num_experts_ = experts;
    }
    if (layers != num_layers_ || experts != num_experts_)
      throw parse_error(file, "",
                        "has {} layers of {} experts, but {} has {} layers of {}; read them separately",
                        layers, experts, first_, num_layers_, num_experts_);
  }

  void add_record(const IntArray& loads, std::size_t record, std::vector<std::int64_t>& sum,
                  const std::string& file) const {
    sum.resize(static_cast<std::size_t>(num_experts_), 0);
    for (std::size_t e = 0; e < sum.size(); ++e) {
      const std::int64_t load = loads.values[record * sum.size() + e];
      if (load < 0 || __builtin_add_overflow(sum[e], load, &sum[e]))
        throw parse_error(file, loads_name, "element {} is {}; counts are 0 or more, with a sum below 2^63",
                          record * sum.size() + e, load);
    }
  }

  // Notes missing records: UltraEP drops records that it cannot copy in time, and a chunk may end within a
  // micro-batch.
  void note_missing(std::int64_t complete, const Steps::value_type* incomplete, const std::string& file) {
    const auto [least, most] =
        std::ranges::minmax_element(records_of_, {}, [](const auto& layer) { return layer.second; });
    if (!keep_steps_ && least->second < most->second)
      notes_.push_back(fmt::format(
          "UltraEP's layers have unequal numbers of records: its layer {} has {}, its layer {} has {}",
          least->first, least->second, most->first, most->second));
    if (incomplete == nullptr) return;
    const std::string which =
        fmt::format("micro-batch {} of {} has {} of {} layers", incomplete->first.second,
                    incomplete->first.first, incomplete->second.size(), records_of_.size());
    if (complete == 0)
      throw parse_error(file, "",
                        "has no micro-batch with all layers: {}; right would be a whole trace, with pipeline "
                        "stages read separately",
                        which);
    notes_.push_back(fmt::format("{} of {} micro-batches lack layers and are left out: {}",
                                 std::ssize(steps_) - complete, steps_.size(), which));
  }

  // Trainers count layers from 0 or from 1. Only the presence of the first or the last layer tells which.
  LayerNumbers layer_numbers() {
    std::vector<int> numbers;
    for (const auto& [layer, records] : records_of_) numbers.push_back(layer);
    if (numbers.front() == 0) return LayerNumbers(std::move(numbers));
    if (numbers.back() < num_layers_) {
      notes_.push_back(fmt::format(
          "the trace's layers {} of {} may be counted from 0 or from 1; the trace does not say which",
          to_text(LayerNumbers(std::move(numbers))), num_layers_));
      return {};
    }
    for (int& number : numbers) --number;
    return LayerNumbers(std::move(numbers));
  }

  bool keep_steps_;
  std::string first_;
  int num_layers_ = 0;
  int num_experts_ = 0;
  std::map<std::string, Trace> traces_;
  std::map<int, std::int64_t> records_of_;  // by layer
  Steps steps_;
  std::vector<std::string> notes_;
};

}  // namespace

bool is_ultra_ep_chunk(const ArrayFile& file) {
  return file.find(loads_name) != nullptr;
}

FoundRouting find_ultra_ep_chunk(const ArrayFile& chunk, const ReadOptions& options) {
  TraceSum sum(options.keeps_steps());
  sum.add(chunk);
  return std::move(sum).found(chunk.name());
}

FoundRouting find_ultra_ep_traces(const std::string& folder, const std::vector<std::string>& chunks,
                                  const std::vector<std::string>& manifests, const ReadOptions& options) {
  TraceSum sum(options.keeps_steps());
  for (const std::string& chunk : chunks) sum.add(*open_array_file(chunk));
  sum.require_all_chunks(manifests, folder);
  return std::move(sum).found(folder);
}

}  // namespace evenkeel::internal
