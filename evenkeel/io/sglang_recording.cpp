// Recordings of SGLang's expert distribution recorder, in all of its modes.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/bare_array.h"
#include "evenkeel/io/internal/fractional_loads.h"
#include "evenkeel/io/internal/memory_array.h"
#include "evenkeel/io/internal/moe_layers.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/torch_file.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/sglang.h"

namespace evenkeel {

namespace {

using internal::Pickle;
using internal::TorchFile;

constexpr const char* map_key = "last_physical_to_logical_map";

// [layers, physical experts] -> expert. Physical experts are what the detailed modes record.
struct PhysicalMap {
  std::int64_t layers = 0;
  std::int64_t physical = 0;
  int num_experts = 0;
  std::vector<std::int64_t> experts;

  std::int64_t expert(std::int64_t layer, std::int64_t id) const {
    return experts[static_cast<std::size_t>(layer * physical + id)];
  }
};

PhysicalMap read_map(TorchFile& file, std::optional<int> num_experts) {
  const auto found = file.pickle().find(file.pickle().root(), map_key);
  if (!found)
    throw ParseError(file.name(), map_key,
                     "is missing; the records count physical experts, and without it nobody knows which "
                     "experts those are");
  IntArray map = file.integers(*found, map_key);
  if (map.shape.size() != 2 || map.values.empty())
    throw ParseError(file.name(), map_key,
                     fmt::format("shape {} is not [layers, physical experts]", internal::to_text(map.shape)));
  const std::int64_t largest = *std::max_element(map.values.begin(), map.values.end());
  const std::int64_t smallest = *std::min_element(map.values.begin(), map.values.end());
  const std::int64_t most = num_experts.value_or(max_trace_experts) - 1;
  if (smallest < 0 || largest > most)
    throw ParseError(file.name(), map_key,
                     fmt::format("names expert {}, outside 0..{}", smallest < 0 ? smallest : largest, most));
  return {.layers = map.shape[0],
          .physical = map.shape[1],
          .num_experts = num_experts.value_or(static_cast<int>(largest) + 1),
          .experts = std::move(map.values)};
}

// Mode per_pass: [layers, physical experts] of each forward pass.
void add_counts(const IntArray& of_pass, const PhysicalMap& map, const std::string& file,
                const std::string& key, IntArray& sum) {
  if (of_pass.shape != std::vector<std::int64_t>{map.layers, map.physical})
    throw ParseError(file, key,
                     fmt::format("shape {} is not that of {}, [{}, {}]", internal::to_text(of_pass.shape),
                                 map_key, map.layers, map.physical));
  for (std::size_t i = 0; i < of_pass.values.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i) / map.physical;
    std::int64_t& load = sum.values[static_cast<std::size_t>(layer * map.num_experts + map.experts[i])];
    if (of_pass.values[i] < 0 || __builtin_add_overflow(load, of_pass.values[i], &load))
      throw ParseError(
          file, key,
          fmt::format("element {} is {}; counts are 0 or more, with a sum below 2^63", i, of_pass.values[i]));
  }
}

// Mode per_token: [layers, tokens, k] of each forward pass, appended as [tokens, layers, k].
void add_tokens(const IntArray& of_pass, const PhysicalMap& map, const std::string& file,
                const std::string& key, internal::TokenIds& tokens) {
  if (of_pass.shape.size() != 3 || of_pass.shape[0] != map.layers || of_pass.shape[2] < 1 ||
      (!tokens.ids.empty() && of_pass.shape[2] != tokens.top_k))
    throw ParseError(file, key,
                     fmt::format("shape {} is not [{} layers, tokens, k], with one k in all records",
                                 internal::to_text(of_pass.shape), map.layers));
  const std::int64_t num_tokens = of_pass.shape[1];
  const std::int64_t width = of_pass.shape[2];
  if (map.layers * width > max_trace_assignments_per_token)
    throw ParseError(file, key, "has too many assignments a token");
  tokens.top_k = static_cast<int>(width);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    for (std::int64_t layer = 0; layer < map.layers; ++layer) {
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t id =
            of_pass.values[static_cast<std::size_t>((layer * num_tokens + token) * width + j)];
        if (id < no_expert || id >= map.physical)
          throw ParseError(file, key,
                           fmt::format("physical expert {} of token {} in layer {} is outside 0..{}", id,
                                       token, layer, map.physical - 1));
        tokens.ids.push_back(id == no_expert ? no_expert : static_cast<std::int32_t>(map.expert(layer, id)));
      }
    }
  }
}

RoutingFile routing_of_records(TorchFile& file, Pickle::Id records, std::optional<int> num_experts) {
  const Pickle& pickle = file.pickle();
  if (pickle.kind(records) != Pickle::Kind::list || pickle.items(records).empty())
    throw ParseError(file.name(), "records", "is not a list of forward passes");
  const PhysicalMap map = read_map(file, num_experts);
  if (map.layers > max_layers)
    throw ParseError(file.name(), map_key, fmt::format("has more than {} layers", max_layers));
  internal::TokenIds tokens;
  for (int layer = 0; layer < map.layers; ++layer) tokens.layers.push_back(layer);
  // As large as there are experts, which may be far more than the map has numbers.
  if (map.layers * map.num_experts > (std::int64_t{1} << 20) + 16 * map.layers * map.physical)
    throw ParseError(file.name(), map_key, fmt::format("has room for few of {} experts", map.num_experts));
  IntArray sum{
      .shape = {map.layers, map.num_experts},
      .values = std::vector<std::int64_t>(static_cast<std::size_t>(map.layers * map.num_experts), 0)};
  const auto items = pickle.items(records);
  const bool by_token = pickle.find(items.front(), "topk_ids_of_layer").has_value();
  const char* wanted = by_token ? "topk_ids_of_layer" : "global_physical_count";
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string key = fmt::format("records[{}].{}", i, wanted);
    const auto found = pickle.find(items[i], wanted);
    if (!found) throw ParseError(file.name(), key, "is missing");
    const IntArray of_pass = file.integers(*found, key);
    if (by_token)
      add_tokens(of_pass, map, file.name(), key, tokens);
    else
      add_counts(of_pass, map, file.name(), key, sum);
  }
  if (by_token) return internal::routing_of_tokens(std::move(tokens), map.num_experts, file.name());
  return internal::routing_of_counts(std::move(sum), file.name(), "records",
                                     internal::CountRows::hidden_layers);
}

// Averages of counts are loads as well.
RoutingFile routing_of_loads(TorchFile& file, Pickle::Id tensor, const char* key, internal::CountRows rows) {
  if (!file.is_floating(tensor))
    return internal::routing_of_counts(file.integers(tensor, key), file.name(), key, rows);
  DoubleArray numbers = file.doubles(tensor, key);
  internal::ScaledLoads loads = internal::scaled_loads(numbers.values, file.name(), key);
  RoutingFile routing =
      internal::routing_of_counts({std::move(numbers.shape), std::move(loads.loads)}, file.name(), key, rows);
  loads.note_in(routing.notes);
  return routing;
}

// A tensor that somebody saved alone, of whatever it holds.
RoutingFile routing_of_tensor(TorchFile& file, Pickle::Id tensor, const RoutingOptions& options) {
  const char* const key = "tensor";
  if (file.is_floating(tensor) && options.bare != RoutingOptions::Bare::trace)
    return routing_of_loads(file, tensor, key, internal::CountRows::unsaid);
  IntArray numbers = file.integers(tensor, key);
  internal::MemoryArray<std::int64_t> array(file.name(), key, numbers.shape, std::move(numbers.values));
  if (internal::bare_array_kind(array, options, file.name()) == internal::BareArray::ids)
    return internal::routing_of_ids(std::move(array), options.num_experts);
  return internal::routing_of_counts({numbers.shape, std::move(array).values()}, file.name(), key,
                                     internal::CountRows::unsaid);
}

RoutingFile routing_of_root(TorchFile& file, const RoutingOptions& options) {
  const Pickle& pickle = file.pickle();
  const Pickle::Id root = pickle.root();
  if (file.is_tensor(root)) return routing_of_tensor(file, root, options);
  if (const auto records = pickle.find(root, "records"))
    return routing_of_records(file, *records, options.num_experts);
  if (const auto counts = pickle.find(root, "logical_count"))
    return routing_of_loads(file, *counts, "logical_count", internal::CountRows::hidden_layers);
  for (const char* key : {"counts", "expert_counts", "expert_load", "tokens_per_expert", "weight"})
    if (const auto counts = pickle.find(root, key); counts && file.is_tensor(*counts))
      return routing_of_loads(file, *counts, key, internal::CountRows::unsaid);
  throw ParseError(file.name(), "data.pkl",
                   fmt::format("is {} without 'logical_count' or 'records', and no tensor of counts: no "
                               "recording of SGLang",
                               pickle.kind_name(root)));
}

}  // namespace

RoutingFile open_sglang_recording(std::shared_ptr<const ByteSource> source, const RoutingOptions& options) {
  TorchFile file(std::move(source));
  RoutingFile routing = routing_of_root(file, options);
  routing.format = "sglang";
  if (!file.is_tensor(file.pickle().root())) routing.what = "recording";
  return routing;
}

}  // namespace evenkeel
