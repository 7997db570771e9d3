// Reads the expert statistics that TensorRT-LLM records: counts by iteration and layer, one file a rank.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Key = std::pair<int, int>;  // iteration and layer

// "104_3": iteration 104, layer 3.
std::optional<Key> key_of(std::string_view name) {
  const auto number = [](std::string_view text, int& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value >= 0;
  };
  Key key;
  const std::size_t middle = name.find('_');
  if (middle == std::string_view::npos || !number(name.substr(0, middle), key.first) ||
      !number(name.substr(middle + 1), key.second))
    return std::nullopt;
  return key;
}

struct Statistics {
  std::int64_t num_experts = 0;
  std::set<int> layers;
  std::map<Key, std::vector<std::int64_t>> loads;
};

void add_rank(const ArrayFile& file, Statistics& all) {
  for (const ArrayInfo& info : file.arrays()) {
    const auto key = key_of(info.name);
    if (!key) throw ParseError(file.name(), info.name, "is not named ITERATION_LAYER, as in 104_3");
    if (key->second >= max_layers)
      throw parse_error(file.name(), info.name, "is of a layer above {}", max_layers - 1);
    if (all.num_experts == 0 && info.shape.size() == 1) all.num_experts = info.shape[0];
    if (info.shape.size() != 1 || info.shape[0] != all.num_experts || info.shape[0] < 1)
      throw parse_error(file.name(), info.name, "shape {} is not [{} experts]", to_text(info.shape),
                        all.num_experts);
    const IntArray counts = read_whole_numbers(file, info.name);
    all.layers.insert(key->second);
    auto& loads = all.loads[*key];
    loads.resize(counts.values.size(), 0);
    for (std::size_t e = 0; e < loads.size(); ++e)
      if (counts.values[e] < 0 || __builtin_add_overflow(loads[e], counts.values[e], &loads[e]))
        throw parse_error(file.name(), info.name,
                          "expert {} has {} tokens; counts are 0 or more, with a sum below 2^63", e,
                          counts.values[e]);
  }
}

// [iterations, layers, experts]. Throws unless all iterations from the first to the last have all layers, as
// TensorRT-LLM's own reader requires.
IntArray complete_counts(const Statistics& all, const std::string& file) {
  if (all.loads.empty()) throw ParseError(file, "", "has no counts");
  const std::int64_t first = all.loads.begin()->first.first;
  const std::int64_t last = all.loads.rbegin()->first.first;
  IntArray counts{.shape = {last - first + 1, std::ssize(all.layers), all.num_experts}, .values = {}};
  for (std::int64_t iteration = first; iteration <= last; ++iteration)
    for (const int layer : all.layers) {
      const auto loads = all.loads.find({static_cast<int>(iteration), layer});
      if (loads == all.loads.end())
        throw parse_error(file, "", "iteration {} has no layer {}; every iteration needs all layers",
                          iteration, layer);
      counts.values.insert(counts.values.end(), loads->second.begin(), loads->second.end());
    }
  return counts;
}

}  // namespace

bool is_trtllm_statistics(const ArrayFile& file) {
  const auto& arrays = file.arrays();
  return file.format() == FileFormat::safetensors && !arrays.empty() &&
         std::all_of(arrays.begin(), arrays.end(),
                     [](const ArrayInfo& info) { return key_of(info.name).has_value(); });
}

FoundRouting find_trtllm_statistics(const std::vector<ByteSource>& ranks, const ByteSource* meta_info) {
  Statistics all;
  if (meta_info != nullptr) {
    const auto json = read_json(*meta_info);
    all.num_experts = JsonField(json, meta_info->name())["num_experts"].integer(1, max_trace_experts);
  }
  for (const auto& source : ranks) add_rank(*open_array_file(source), all);
  const std::string& file = ranks.front().name();
  FoundRouting found = found_counts(complete_counts(all, file), file, "counts", CountRows::moe_layers);
  std::get<FoundCounts>(found.content).layers = LayerNumbers({all.layers.begin(), all.layers.end()});
  found.kind = "statistics";
  found.format = "trtllm";
  return found;
}

}  // namespace evenkeel::internal
