#include "evenkeel/io/expert_map_file.h"

#include <fmt/format.h>

#include <cstddef>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::string_view expert_map_format = "evenkeel.expert_map.v1";

std::vector<ExpertId> read_ids(const JsonField& list, int num_experts) {
  const auto numbers = list.integers();
  if (std::ssize(numbers) != num_experts)
    list.fail("has {} ids, but there are {} experts", numbers.size(), num_experts);
  std::vector<bool> seen(numbers.size(), false);
  std::vector<ExpertId> ids;
  for (const std::int64_t id : numbers) {
    if (id < 0 || id >= num_experts) list.fail("id {} is outside 0..{}", id, num_experts - 1);
    if (seen[static_cast<std::size_t>(id)]) list.fail("id {} is listed twice", id);
    seen[static_cast<std::size_t>(id)] = true;
    ids.emplace_back(id);
  }
  return ids;
}

}  // namespace

ExpertMap read_expert_map(const ByteSource& source) {
  const JsonDocument document = read_json(source);
  const JsonField json(document, source.name());
  require_format(json, expert_map_format);
  ExpertMap map{.num_experts = json["num_experts"].integer(1, max_experts),
                .num_ranks = json["num_ranks"].integer(1, max_ranks)};
  // model_layers and old_to_new are parallel lists.
  const JsonField numbers = json["model_layers"];
  const auto layers = numbers.integers();
  const JsonField lists = json["old_to_new"];
  if (!lists->is_array() || lists->size() != layers.size())
    lists.fail("is not a list of {} layers, as many as model_layers has", layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] >= max_layers)
      numbers.fail("layer {} is outside 0..{}", layers[i], max_layers - 1);
    if (map.new_ids.contains(static_cast<int>(layers[i])))
      numbers.fail("layer {} is listed twice", layers[i]);
    map.new_ids.emplace(static_cast<int>(layers[i]), read_ids(lists[i], map.num_experts));
  }
  return map;
}

void write_expert_map(const ExpertMap& map, const std::string& path) {
  nlohmann::ordered_json json{{"format", expert_map_format},
                              {"num_experts", map.num_experts},
                              {"num_ranks", map.num_ranks},
                              {"model_layers", Json::array()},
                              {"old_to_new", Json::array()}};
  for (const auto& [layer, ids] : map.new_ids) {
    json["model_layers"].push_back(layer);
    auto& list = json["old_to_new"].emplace_back(Json::array());
    for (const ExpertId id : ids) list.push_back(id.value());
  }
  write_file(path, json.dump() + "\n");
}

ExpertMap composed(const ExpertMap& first, const ExpertMap& then) {
  if (first.num_experts != then.num_experts)
    throw InvalidArgument(
        "expert map",
        fmt::format("the earlier map has {} experts, the new one {}", first.num_experts, then.num_experts),
        "the same number of experts");
  ExpertMap both{.num_experts = then.num_experts, .num_ranks = then.num_ranks, .new_ids = first.new_ids};
  for (const auto& [layer, ids] : then.new_ids) {
    const auto [at, is_new] = both.new_ids.emplace(layer, ids);
    if (is_new) continue;
    for (ExpertId& id : at->second) id = ids[id.offset()];
  }
  return both;
}

}  // namespace evenkeel
