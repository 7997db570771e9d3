#include "evenkeel/cost/spill_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/cost/links.h"

namespace evenkeel {

namespace {

// Transfers of the rank that sends or receives the most.
double most_at_a_rank(std::span<const double> transfers, std::size_t ranks) {
  std::vector<double> sends(ranks), receives(ranks);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    sends[i / ranks] += transfers[i];
    receives[i % ranks] += transfers[i];
  }
  return std::max(std::ranges::max(sends), std::ranges::max(receives));
}

}  // namespace

StepParts step_parts(const Machine& machine, const ExpertWork& expert, bool backward) {
  const double gradients = backward ? 4 * expert.elements : 0;
  const double passes = backward ? 2 : 1;
  // Packing reads and writes the weights, and products read them once more.
  const double packing =
      3 * (passes * read_seconds(machine, expert.bytes) + read_seconds(machine, gradients));
  return {.assignment_seconds = row_seconds(machine, expert) * (backward ? 3 : 1),
          .row_trips = 2 * passes,
          .borrowed_bytes = expert.bytes + gradients,
          .packing_seconds = packing,
          .moving_seconds = passes * machine.chunk_seconds};
}

SpillCosts spill_costs(const Machine& machine, const ExpertWork& expert, double row_bytes, bool backward) {
  const StepParts parts = step_parts(machine, expert, backward);
  const double sending = transfer_seconds(machine, expert.bytes) +
                         transfer_seconds(machine, parts.borrowed_bytes - expert.bytes);
  return {.seconds_per_assignment =
              parts.assignment_seconds + parts.row_trips * row_bytes / machine.link_bytes_per_second,
          .seconds_per_transfer = kMovingCostFactor * (sending + parts.packing_seconds),
          .seconds_per_step = kMovingCostFactor * parts.moving_seconds};
}

void require_links(const StepLinks& links, const char* argument) {
  const Topology::Description& topology = links.topology.description();
  if (!topology.links.empty())
    throw InvalidArgument(argument, "the topology gives its links by pairs of ranks",
                          "one link within nodes and one across");
  if (topology.within == Link{} && topology.across == Link{})
    throw InvalidArgument(argument, "the topology does not describe its links",
                          "a topology with links within and across nodes");
  if (topology.devices_per_rank != 1)
    throw InvalidArgument(argument, "the topology's ranks are groups of devices", "ranks of one device");
  if (std::ranges::any_of(topology.speeds, [](double speed) { return speed != 1; }))
    throw InvalidArgument(argument, "the topology gives speeds, but plans treat all ranks alike",
                          "a topology without speeds");
  if (!topology.capacities.empty())
    throw InvalidArgument(
        argument, "the topology limits experts per rank (rooms), but plans do not count borrowed ones",
        "a topology without rooms; borrow_slots limits borrowed experts");
  require_machine(links.machine, argument);
  const std::pair<const char*, double> sizes[] = {{"expert.elements", links.expert.elements},
                                                  {"expert.outputs", links.expert.outputs},
                                                  {"expert.bytes", links.expert.bytes},
                                                  {"row_bytes", links.row_bytes}};
  for (const auto& [name, size] : sizes)
    if (!(size >= 0 && size <= 1e15))
      throw InvalidArgument(argument, fmt::format("{} is {:g}", name, size), "0..1e15");
}

bool links_differ(const StepLinks& links) {
  const Topology::Description& topology = links.topology.description();
  return links.topology.num_nodes() > 1 &&
         (topology.within != topology.across || links.machine.ranks_per_nic != 1);
}

double step_seconds(const StepLinks& links, std::int64_t worst_load, std::span<const double> rows,
                    std::span<const double> transfers) {
  const StepParts parts = step_parts(links.machine, links.expert, links.backward);
  const auto exchange = [&](std::span<const double> items, double item_bytes) {
    std::vector<double> bytes(items.begin(), items.end());
    for (double& each : bytes) each *= item_bytes;
    return exchange_seconds(links.machine, links.topology, bytes);
  };
  const double steady = parts.assignment_seconds * static_cast<double>(worst_load) +
                        parts.row_trips * exchange(rows, links.row_bytes);
  const double weights = exchange(transfers, parts.borrowed_bytes);
  const double most = most_at_a_rank(transfers, static_cast<std::size_t>(links.topology.num_ranks()));
  const double moving = most > 0 ? parts.moving_seconds + most * parts.packing_seconds + weights : 0;
  return steady + kMovingCostFactor * moving;
}

}  // namespace evenkeel
