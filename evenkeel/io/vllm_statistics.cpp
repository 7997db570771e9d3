#include "evenkeel/io/vllm_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/fractional_loads.h"
#include "evenkeel/io/internal/json_lines.h"
#include "evenkeel/io/internal/moe_layers.h"
#include "evenkeel/io/internal/profile_json.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

namespace {

using internal::Json;

constexpr std::string_view stats_type = "eplb_load_stats";
constexpr std::string_view mapping_type = "eplb_initial_mapping";
constexpr const char* load_key = "expert_load";
constexpr const char* p2l_key = "p2l_map";

// Numbers [layers, physical experts], whole or not, as they stand.
std::vector<double> real_rows(const Json& list, const std::string& file) {
  std::vector<double> values;
  for (const Json& row : list)
    for (const Json& number : row) {
      if (!number.is_number())
        throw ParseError(file, load_key, fmt::format("has a JSON {}, not a number", number.type_name()));
      values.push_back(number.get<double>());
    }
  return values;
}

// The loads of all records added up; or those of each, with keep_steps.
class LoadSum {
 public:
  LoadSum(std::string file, bool keep_steps) : file_(std::move(file)), keep_steps_(keep_steps) {}

  void add(const Json& record, const std::string& where) {
    if (const auto version = record.find("version");
        version != record.end() && internal::integer(*version, where, "version") != 1)
      throw ParseError(where, "version", fmt::format("is {}, not 1", version->dump()));
    require_same_model(record, where);
    const IntArray map =
        internal::nested_integers(internal::member(record, p2l_key, where), 2, where, p2l_key);
    require_shape(map, where);
    const Json& load = internal::member(record, load_key, where);
    require_lists(load, map.shape, where);
    const std::vector<double> values = real_rows(load, where);
    const std::size_t physical = static_cast<std::size_t>(map.shape[1]);
    const std::size_t experts = static_cast<std::size_t>(num_experts_);
    const std::size_t begin = begin_step(static_cast<std::size_t>(map.shape[0]) * experts);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (map.values[i] < 0 && values[i] == 0) continue;  // a slot without an expert
      if (map.values[i] < 0)
        throw ParseError(where, fmt::format("{}[{}][{}]", load_key, i / physical, i % physical),
                         "has load, but no expert in the map");
      if (!(values[i] >= 0))
        throw ParseError(where, fmt::format("{}[{}][{}]", load_key, i / physical, i % physical),
                         fmt::format("is {}; a load is 0 or more", values[i]));
      sums_[begin + i / physical * experts + static_cast<std::size_t>(map.values[i])] += values[i];
    }
  }

  RoutingFile routing() {
    if (sums_.empty()) throw ParseError(file_, "record_type", fmt::format("no line has \"{}\"", stats_type));
    internal::ScaledLoads scaled = internal::scaled_loads(sums_, file_, load_key);
    IntArray counts{.shape = {layers_, num_experts_}, .values = std::move(scaled.loads)};
    if (keep_steps_)
      counts.shape.insert(counts.shape.begin(), std::ssize(counts.values) / (layers_ * num_experts_));
    RoutingFile made =
        internal::routing_of_counts(std::move(counts), file_, load_key, internal::CountRows::moe_layers);
    scaled.note_in(made.notes);
    made.what = "statistics";
    made.format = "vllm";
    return made;
  }

 private:
  // Where a record's loads begin.
  std::size_t begin_step(std::size_t size) {
    if (keep_steps_ || sums_.empty()) sums_.resize(sums_.size() + size, 0.0);
    return sums_.size() - size;
  }

  void require_same_model(const Json& record, const std::string& where) {
    const auto found = record.find("model");
    const std::string model = found == record.end() ? "" : found->dump();
    if (!sums_.empty() && model != model_)
      throw ParseError(where, "model",
                       fmt::format("is {} where a record before has {}; read them apart",
                                   model.empty() ? "not said" : model, model_.empty() ? "none" : model_));
    model_ = model;
  }

  // Every record has all experts, each in every layer.
  void require_shape(const IntArray& map, const std::string& where) {
    if (map.values.empty()) throw ParseError(where, p2l_key, "is empty");
    const std::int64_t most = *std::max_element(map.values.begin(), map.values.end());
    if (most >= std::min<std::int64_t>(max_trace_experts, map.shape[1]))
      throw ParseError(where, p2l_key,
                       fmt::format("names expert {}, but has {} physical experts", most, map.shape[1]));
    if (sums_.empty()) {
      layers_ = map.shape[0];
      num_experts_ = most + 1;
    }
    if (map.shape[0] != layers_ || most + 1 != num_experts_)
      throw ParseError(where, p2l_key,
                       fmt::format("is of {} layers of {} experts where a record before has {} of {}",
                                   map.shape[0], most + 1, layers_, num_experts_));
    require_all_experts(map, where);
  }

  void require_all_experts(const IntArray& map, const std::string& where) const {
    std::vector<std::int64_t> seen(static_cast<std::size_t>(num_experts_), -1);
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < map.shape[1]; ++i) {
        const std::int64_t expert = map.values[static_cast<std::size_t>(layer * map.shape[1] + i)];
        if (expert < 0 || seen[static_cast<std::size_t>(expert)] == layer) continue;
        seen[static_cast<std::size_t>(expert)] = layer;
        ++found;
      }
      if (found != num_experts_)
        throw ParseError(where, fmt::format("{}[{}]", p2l_key, layer),
                         fmt::format("has {} of {} experts", found, num_experts_));
    }
  }

  void require_lists(const Json& load, const std::vector<std::int64_t>& shape,
                     const std::string& where) const {
    bool fits = load.is_array() && std::ssize(load) == shape[0];
    if (fits)
      fits = std::all_of(load.begin(), load.end(),
                         [&](const Json& row) { return row.is_array() && std::ssize(row) == shape[1]; });
    if (!fits)
      throw ParseError(
          where, load_key,
          fmt::format("is not of {} layers of {} physical experts, as {} is", shape[0], shape[1], p2l_key));
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
  internal::for_each_piece(
      source, std::max(mapping_type.size(), stats_type.size()) - 1, [&](std::string_view text) {
        found.placement = found.placement || text.find(mapping_type) != std::string_view::npos;
        found.statistics = found.statistics || text.find(stats_type) != std::string_view::npos;
        return !(found.placement && found.statistics);
      });
  return found;
}

RoutingFile open_vllm_statistics(const ByteSource& source, const RoutingOptions& options) {
  LoadSum sum(source.name(), options.keep_steps);
  internal::for_each_json_line(source, [&](internal::JsonDocument&& record, std::int64_t line) {
    if (!record.is_object()) return;
    const auto type = record.find("record_type");
    const bool is_stats =
        type == record.end() ? record.contains(load_key) && record.contains(p2l_key) : *type == stats_type;
    if (is_stats) sum.add(record, fmt::format("{}: line {}", source.name(), line));
  });
  return sum.routing();
}

}  // namespace evenkeel
