#include "evenkeel/io/internal/checkpoint/checkpoint_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/config_layers.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/language_config.h"
#include "evenkeel/io/internal/routing_groups.h"

namespace evenkeel::internal {

namespace {

std::string known_names() {
  std::vector<std::string_view> names;
  for (const Family& family : known_families())
    if (family.tensors) names.push_back(family.name());
  return fmt::format("{}", fmt::join(names, ", "));
}

const Family& family_of(const LanguageConfig& config) {
  const std::string& file = config.whole.file();
  if (config.family == nullptr) {
    const std::vector<std::string> architectures = architectures_of(config.whole);
    throw Unsupported(fmt::format(
        "{}: model_type '{}' (architectures: {}) is not one whose experts this can permute; known: {}", file,
        config.model_type, architectures.empty() ? "none" : fmt::format("{}", fmt::join(architectures, ", ")),
        known_names()));
  }
  const Family& family = *config.family;
  if (!family.tensors)
    throw Unsupported(fmt::format(
        "{}: the experts of {} cannot be permuted: {}", file, family.name(),
        family.not_permuted.empty() ? "how it names their tensors is not known" : family.not_permuted));
  return family;
}

RoutingGroups groups_of(const ConfigKeys& config, const Family& family, int num_experts) {
  const std::optional<RoutingGroups> groups = routing_groups(config, family, num_experts);
  if (!groups)
    config.fail(group_count_key,
                "is missing; {} chooses groups of experts first, and the number of groups must be "
                "known (1 where there are none)",
                family.name());
  return *groups;
}

}  // namespace

void require_whole_groups(std::span<const ExpertId> order, const RoutingGroups& groups,
                          const std::string& where) {
  if (!groups.bind()) return;
  const std::size_t size = order.size() / static_cast<std::size_t>(groups.count);
  for (std::size_t id = 0; id < order.size(); ++id) {
    const std::size_t first = id / size * size;  // of the new group that this id is in
    const std::size_t group = order[id].offset() / size;
    const std::size_t expected = order[first].offset() / size;
    if (group == expected) continue;
    throw Infeasible(fmt::format(
        "{}: the placement would put expert {} of group {} and expert {} of group {} into one group (new ids "
        "{}..{}), and the model, which chooses {} of {} groups of {} experts first, would compute something "
        "else; "
        "keep the experts of a group together: whole groups on a rank, or each group on ranks of its own",
        where, order[first].value(), expected, order[id].value(), group, first, first + size - 1,
        groups.chosen, groups.count, size));
  }
}

CheckpointConfig read_checkpoint_config(const ByteSource& source) {
  const std::string& file = source.name();
  const JsonDocument json = read_config_json(source);
  if (!json.is_object()) throw ParseError(file, "", "is not a JSON object");
  const LanguageConfig config = language_config(json, file);
  CheckpointConfig checkpoint;
  checkpoint.family = &family_of(config);
  const std::optional<int> layers = hidden_layers(config.keys);
  if (!layers) config.keys.fail("num_hidden_layers", "is missing");
  checkpoint.num_layers = *layers;
  checkpoint.num_experts = num_experts(config.keys);
  if (checkpoint.num_experts == 0)
    config.keys.fail(checkpoint.family->weights ? checkpoint.family->weights->experts : "num_experts",
                     "is missing");
  checkpoint.groups = groups_of(config.keys, *checkpoint.family, checkpoint.num_experts);
  require_all_or_no_experts(json, checkpoint.num_experts, file);
  return checkpoint;
}

}  // namespace evenkeel::internal
