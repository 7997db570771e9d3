// Load statistics that vLLM writes as JSON lines (docs/formats.md#vllm).

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::internal {

namespace {

constexpr std::string_view stats_type = "eplb_load_stats";
constexpr std::string_view mapping_type = "eplb_initial_mapping";
constexpr const char* load_key = "expert_load";
constexpr const char* p2l_key = "p2l_map";

// Numbers [layers, physical experts], whole or not, as they stand.
std::vector<double> real_rows(const JsonField& list) {
  std::vector<double> values;
  for (const Json& row : *list)
    for (const Json& number : row) {
      if (!number.is_number()) list.fail("has a JSON {}, not a number", number.type_name());
      values.push_back(number.get<double>());
    }
  return values;
}

// The loads of all records added up; or those of each, with keep_steps.
class LoadSum {
 public:
  LoadSum(std::string file, bool keep_steps) : file_(std::move(file)), keep_steps_(keep_steps) {}

  void add(const JsonField& record) {
    if (const auto version = record.find("version"); version && version->integer() != 1)
      version->fail("is {}, not 1", (*version)->dump());
    require_same_model(record);
    const JsonField p2l = record[p2l_key];
    const IntArray map = nested_integers(*p2l, 2, record.file(), p2l_key);
    require_shape(map, p2l);
    const JsonField load = record[load_key];
    require_lists(load, map.shape);
    const std::vector<double> values = real_rows(load);
    const std::size_t physical = static_cast<std::size_t>(map.shape[1]);
    const std::size_t experts = static_cast<std::size_t>(num_experts_);
    const std::size_t begin = begin_step(static_cast<std::size_t>(map.shape[0]) * experts);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (map.values[i] < 0 && values[i] == 0) continue;  // a slot without an expert
      if (map.values[i] < 0) load[i / physical][i % physical].fail("has load, but no expert in the map");
      if (!(values[i] >= 0)) load[i / physical][i % physical].fail("is {}; a load is 0 or more", values[i]);
      sums_[begin + i / physical * experts + static_cast<std::size_t>(map.values[i])] += values[i];
    }
  }

  FoundRouting found() {
    if (sums_.empty()) throw parse_error(file_, "record_type", "no line has \"{}\"", stats_type);
    DoubleArray loads{.shape = {layers_, num_experts_}, .values = std::move(sums_)};
    if (keep_steps_)
      loads.shape.insert(loads.shape.begin(), std::ssize(loads.values) / (layers_ * num_experts_));
    FoundRouting found = found_counts(loads, file_, load_key, CountRows::moe_layers);
    found.kind = "statistics";
    found.format = "vllm";
    return found;
  }

 private:
  // Where a record's loads begin.
  std::size_t begin_step(std::size_t size) {
    if (keep_steps_ || sums_.empty()) sums_.resize(sums_.size() + size, 0.0);
    return sums_.size() - size;
  }

  void require_same_model(const JsonField& record) {
    const auto found = record.find("model");
    const std::string model = found ? (*found)->dump() : "";
    if (!sums_.empty() && model != model_)
      throw parse_error(record.file(), "model", "is {} where a record before has {}; read them apart",
                        model.empty() ? "not said" : model, model_.empty() ? "none" : model_);
    model_ = model;
  }

  // Every record has all experts, each in every layer.
  void require_shape(const IntArray& map, const JsonField& p2l) {
    if (map.values.empty()) p2l.fail("is empty");
    const std::int64_t most = std::ranges::max(map.values);
    if (most >= std::min<std::int64_t>(max_trace_experts, map.shape[1]))
      p2l.fail("names expert {}, but has {} physical experts", most, map.shape[1]);
    if (sums_.empty()) {
      layers_ = map.shape[0];
      num_experts_ = most + 1;
    }
    if (map.shape[0] != layers_ || most + 1 != num_experts_)
      p2l.fail("is of {} layers of {} experts where a record before has {} of {}", map.shape[0], most + 1,
               layers_, num_experts_);
    std::vector<std::int64_t> seen(static_cast<std::size_t>(num_experts_), -1);
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < map.shape[1]; ++i) {
        const std::int64_t expert = map.values[static_cast<std::size_t>(layer * map.shape[1] + i)];
        if (expert < 0 || std::exchange(seen[static_cast<std::size_t>(expert)], layer) == layer) continue;
        ++found;
      }
      if (found != num_experts_)
        p2l[static_cast<std::size_t>(layer)].fail("has {} of {} experts", found, num_experts_);
    }
  }

  static void require_lists(const JsonField& load, const std::vector<std::int64_t>& shape) {
    const auto is_row = [&](const Json& row) { return row.is_array() && std::ssize(row) == shape[1]; };
    if (!load->is_array() || std::ssize(*load) != shape[0] ||
        !std::all_of(load->begin(), load->end(), is_row))
      load.fail("is not of {} layers of {} physical experts, as {} is", shape[0], shape[1], p2l_key);
  }

  std::string file_;
  bool keep_steps_;
  std::string model_;
  std::int64_t layers_ = 0;
  std::int64_t num_experts_ = 0;
  std::vector<double> sums_;  // [layers, E], with keep_steps_ of each record
};

}  // namespace

VllmRecords find_vllm_records(const ByteSource& source) {
  VllmRecords found;
  for_each_piece(source, std::max(mapping_type.size(), stats_type.size()) - 1, [&](std::string_view text) {
    found.placement = found.placement || text.find(mapping_type) != std::string_view::npos;
    found.statistics = found.statistics || text.find(stats_type) != std::string_view::npos;
    return !(found.placement && found.statistics);
  });
  return found;
}

FoundRouting find_vllm_statistics(const ByteSource& source, const ReadOptions& options) {
  LoadSum sum(source.name(), options.keeps_steps());
  for_each_json_line(source, [&](JsonDocument&& record, std::int64_t line) {
    if (!record.is_object()) return;
    const auto type = record.find("record_type");
    const bool is_stats =
        type == record.end() ? record.contains(load_key) && record.contains(p2l_key) : *type == stats_type;
    if (!is_stats) return;
    const std::string where = fmt::format("{}: line {}", source.name(), line);
    sum.add({record, where});
  });
  return sum.found();
}

}  // namespace evenkeel::internal
