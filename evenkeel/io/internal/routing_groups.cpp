#include "evenkeel/io/internal/routing_groups.h"

#include <array>
#include <string>

namespace evenkeel::internal {

namespace {

const std::string* first_stated(const ConfigKeys& config, const std::array<std::string, 2>& keys) {
  for (const std::string& key : keys)
    if (config.is_there(key)) return &key;
  return nullptr;
}

}  // namespace

std::optional<RoutingGroups> routing_groups(const ConfigKeys& config, const Family& family, int num_experts) {
  static const std::array<std::string, 2> count_keys = {group_count_key, "num_expert_group"};
  static const std::array<std::string, 2> chosen_keys = {"topk_group", "topk_groups"};
  if (family.groups == Family::Groups::unless_greedy && config.word("topk_method") == "greedy")
    return RoutingGroups{};
  const std::string* count = first_stated(config, count_keys);
  if (count == nullptr) {
    const bool stated_null = config.is_null(count_keys[0]) || config.is_null(count_keys[1]);
    if (!stated_null && family.groups == Family::Groups::always_stated) return std::nullopt;
    return RoutingGroups{};
  }
  RoutingGroups groups;
  groups.count = config.integer(*count, 1, num_experts);
  const std::string* chosen = first_stated(config, chosen_keys);
  groups.chosen = chosen == nullptr ? groups.count : config.integer(*chosen, 1, groups.count);
  if (num_experts % groups.count != 0)
    config.fail(*count, "{} experts are not equally many in {} groups", num_experts, groups.count);
  return groups;
}

}  // namespace evenkeel::internal
