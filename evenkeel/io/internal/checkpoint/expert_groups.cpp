#include "evenkeel/io/internal/checkpoint/expert_groups.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

void require_whole_groups(std::span<const ExpertId> order, const ExpertGroups& groups,
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

}  // namespace evenkeel::internal
