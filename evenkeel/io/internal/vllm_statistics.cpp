// Reads load statistics that vLLM writes as JSON Lines (docs/formats.md#vllm).

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::internal {

namespace {

constexpr const char* load_key = "expert_load";
constexpr const char* p2l_key = "p2l_map";

// Adds up the loads of all records, or keeps those of each record with keep_steps.
class LoadSum {
 public:
  LoadSum(std::string file, bool keep_steps) : file_(std::move(file)), keep_steps_(keep_steps) {}

  void add(const JsonField& record) {
    if (const auto version = record.find("version")) version->integer(1, 1);
    require_same_model(record);
    const JsonField p2l = record[p2l_key];
    const IntArray map = nested_integers(*p2l, 2, record.file(), p2l_key);
    require_same_shape(map, p2l);
    const JsonField load = record[load_key];
    const DoubleArray loads = nested_reals(*load, 2, record.file(), load_key);
    if (loads.shape != map.shape)
      load.fail("does not have {} layers of {} physical experts, as {} has", map.shape[0], map.shape[1],
                p2l_key);
    const auto num_experts = static_cast<std::size_t>(num_experts_);
    const auto size = static_cast<std::size_t>(layers_) * num_experts;
    if (keep_steps_ || sums_.empty()) sums_.resize(sums_.size() + size, 0.0);
    const auto physical = static_cast<std::size_t>(map.shape[1]);
    for (std::size_t layer = 0; layer < load->size(); ++layer) {
      const std::span sums = std::span(sums_).last(size).subspan(layer * num_experts, num_experts);
      std::vector<bool> seen(num_experts, false);
      for (std::size_t slot = 0; slot < physical; ++slot) {
        const std::int64_t expert = map.values[layer * physical + slot];
        const double count = loads.values[layer * physical + slot];
        if (count < 0) load[layer][slot].fail("is {}; a load is 0 or more", count);
        if (expert < 0 && count > 0) load[layer][slot].fail("has load, but the map gives it no expert");
        if (expert < 0) continue;
        sums[static_cast<std::size_t>(expert)] += count;
        seen[static_cast<std::size_t>(expert)] = true;
      }
      if (const auto found = std::ranges::count(seen, true); found != num_experts_)
        p2l[layer].fail("names only {} of the {} experts", found, num_experts_);
    }
  }

  FoundRouting found() {
    if (sums_.empty()) throw parse_error(file_, "record_type", "no line has \"{}\"", vllm_stats_type);
    DoubleArray loads{.shape = {layers_, num_experts_}, .values = std::move(sums_)};
    if (keep_steps_)
      loads.shape.insert(loads.shape.begin(), std::ssize(loads.values) / (layers_ * num_experts_));
    FoundRouting found = found_counts(loads, file_, load_key, CountRows::moe_layers);
    found.kind = "statistics";
    found.format = "vllm";
    return found;
  }

 private:
  void require_same_model(const JsonField& record) {
    const auto found = record.find("model");
    const std::string model = found ? (*found)->dump() : "";
    if (!sums_.empty() && model != model_)
      throw parse_error(record.file(), "model",
                        "is {}, but in an earlier record it is {}; read the two models separately",
                        model.empty() ? "missing" : model, model_.empty() ? "missing" : model_);
    model_ = model;
  }

  void require_same_shape(const IntArray& map, const JsonField& p2l) {
    if (map.values.empty()) p2l.fail("is empty");
    const std::int64_t most = std::ranges::max(map.values);
    if (most >= std::min<std::int64_t>(max_trace_experts, map.shape[1]))
      p2l.fail("names expert {}, but has only {} physical experts", most, map.shape[1]);
    if (sums_.empty()) {
      layers_ = map.shape[0];
      num_experts_ = most + 1;
    }
    if (map.shape[0] != layers_ || most + 1 != num_experts_)
      p2l.fail("has {} layers of {} experts, but an earlier record has {} layers of {}", map.shape[0],
               most + 1, layers_, num_experts_);
  }

  std::string file_;
  bool keep_steps_;
  std::string model_;
  std::int64_t layers_ = 0;
  std::int64_t num_experts_ = 0;
  std::vector<double> sums_;  // [layers, E]; with keep_steps_ [records, layers, E]
};

}  // namespace

FoundRouting find_vllm_statistics(const ByteSource& source, const ReadOptions& options) {
  LoadSum sum(source.name(), options.keeps_steps());
  for_each_json_line(source, [&](JsonDocument&& record, std::int64_t line) {
    if (!record.is_object()) return;
    const auto type = record.find("record_type");
    const bool is_stats = type == record.end() ? record.contains(load_key) && record.contains(p2l_key)
                                               : *type == vllm_stats_type;
    if (!is_stats) return;
    const std::string where = fmt::format("{}: line {}", source.name(), line);
    sum.add({record, where});
  });
  return sum.found();
}

}  // namespace evenkeel::internal
