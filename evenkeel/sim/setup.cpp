#include "evenkeel/sim/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/evaluate/time_model.h"

namespace evenkeel {

namespace {

SimLayer sim_layer(const SimRequest& request, const GroupShape& shape, const StepSource& steps,
                   const std::string& recording, std::vector<std::string>& notes) {
  ModelDescription model = *request.model;
  if (model.dtype_bytes == 0) {
    model.dtype_bytes = 2;
    notes.push_back("the model's config gives no number type: bfloat16 is assumed");
  }
  const ExpertSizes expert = expert_sizes(model, request.expert_bytes, recording, steps.num_experts());
  SimLayer layer;
  ChunkShape& chunk = layer.chunk;
  chunk.num_ranks = shape.ranks;
  chunk.num_experts = steps.num_experts();
  chunk.top_k = steps.top_k().value_or(1);
  chunk.hidden = model.expert_row_width();
  chunk.element_bytes = model.dtype_bytes;
  chunk.weight_bytes = chunk.forward_weight_bytes = std::llround(*expert.bytes);
  chunk.row_outputs = std::llround(expert.work.outputs);
  chunk.with_backward = request.backward;
  if (request.backward) {
    chunk.backward_weight_bytes = chunk.weight_bytes;
    chunk.gradient_bytes = std::llround(expert.work.elements) * std::int64_t{sizeof(float)};
    chunk.saved_bytes = (chunk.row_outputs - chunk.hidden) * chunk.element_bytes;
  }
  layer.sizes.expert = {expert.work, static_cast<double>(chunk.gradient_bytes)};
  layer.sizes.expert.work.bytes = layer.sizes.sent_weight_bytes = *expert.bytes;
  layer.sizes.row_bytes = static_cast<double>(chunk.row_bytes());
  return layer;
}

std::optional<Machine> machine_of(const SimRequest& request, std::vector<std::string>& notes) {
  if (request.machine || request.device.empty()) return request.machine;
  const DevicePreset& device = device_preset(request.device);
  const Machine machine = device_machine(device);
  notes.push_back(
      fmt::format("{} ({}): assumes {:g} % of the datasheet's compute and memory rates, and {:g} us for a "
                  "chunk's messages; a file of costs has measured rates",
                  device.name, device.summary, 100 * assumed_share_of_peak, machine.chunk_seconds * 1e6));
  return machine;
}

// Adds the machine's links if the caller gave no links for the topology.
Topology with_links(Topology topology, const SimRequest& request, const Machine& machine,
                    std::vector<std::string>& notes) {
  Topology::Description description = topology.description();
  const bool says_links =
      !description.links.empty() || description.within != Link{} || description.across != Link{};
  if (request.topology_has_links && says_links) {
    notes.push_back("links are assumed to reach the topology's figures; presets have published peaks");
    return topology;
  }
  description.within = {machine.link_bytes_per_second * 1e-9, machine.link_seconds * 1e6};
  description.across = {machine.nic_bytes_per_second * 1e-9, machine.nic_seconds * 1e6};
  for (const Link& link : {description.within, description.across})
    if (!bandwidth_range.holds(link.gigabytes_per_s) || !latency_range.holds(link.latency_us))
      throw InvalidArgument(
          "cost", fmt::format("has a link of {:g} GB/s and {:g} us", link.gigabytes_per_s, link.latency_us),
          fmt::format("{} GB/s and {} us", bandwidth_range.text(), latency_range.text()));
  if (topology.num_nodes() > 1 && !request.machine)
    notes.push_back(
        fmt::format("{} has no network figures: links between nodes are assumed as fast as those within, "
                    "unless a topology says otherwise",
                    request.device));
  return Topology(std::move(description));
}

// True if require_links() (cost/spill_costs.h) accepts the topology. If it does not, the time of transfers is
// still predicted, but plans do not use the links.
bool planners_know_links(const Topology::Description& topology) {
  return topology.links.empty() && topology.speeds.empty() && topology.capacities.empty() &&
         topology.devices_per_rank == 1;
}

void require_budget(const SimSetup& setup) {
  if (!setup.budget) return;
  if (!setup.layer)
    throw InvalidArgument("budget", "needs the sizes of rows and experts",
                          "to leave it out, or to give a model");
  BudgetShape shape;
  shape.chunk = setup.layer->chunk;
  shape.max_tokens = setup.most_tokens;
  if (const std::int64_t least = least_budget(shape); *setup.budget < least)
    throw BudgetTooSmall(*setup.budget, least, fmt::format("steps of {} tokens a rank", setup.most_tokens));
}

}  // namespace

Topology group_topology(const Topology& topology, const GroupShape& shape) {
  if (shape.groups == 1) return topology;
  const Topology::Description& all = topology.description();
  const auto ranks = static_cast<std::size_t>(shape.ranks);
  Topology::Description group = all;
  group.node_of_rank.resize(ranks);
  const auto refuse = [&] {
    throw InvalidArgument(
        "topology",
        fmt::format("{} ranks make {} groups of expert parallelism of {} ranks, and these groups differ",
                    topology.num_ranks(), shape.groups, shape.ranks),
        "the same nodes in each group, and no links, speeds or capacities by rank");
  };
  if (!all.links.empty() || !all.speeds.empty() || !all.capacities.empty()) refuse();
  for (std::size_t rank = 0; rank < all.node_of_rank.size(); ++rank)
    if (all.node_of_rank[rank] - all.node_of_rank[rank / ranks * ranks] !=
        all.node_of_rank[rank % ranks] - all.node_of_rank.front())
      refuse();
  return Topology(std::move(group));
}

SimSetup sim_setup(const SimRequest& request, const GroupShape& shape, const StepSource& steps,
                   const std::string& recording, std::vector<std::string>& notes) {
  const std::vector<double>& speeds = request.topology.description().speeds;
  if (std::ranges::adjacent_find(speeds, std::not_equal_to{}) != speeds.end())
    throw InvalidArgument("topology",
                          "gives speeds, but steps are planned and timed for ranks that are alike",
                          "a topology without speeds");
  SimSetup setup{.topology = group_topology(request.topology, shape),
                 .machine = machine_of(request, notes),
                 .backward = request.backward,
                 .budget = request.budget,
                 .most_tokens = steps.most_tokens(),
                 .planner = request.planner};
  if (setup.machine) setup.topology = with_links(std::move(setup.topology), request, *setup.machine, notes);
  if (request.model) {
    setup.layer = sim_layer(request, shape, steps, recording, notes);
    notes.push_back(
        "peak bytes are those of one layer's rows, results, activations and borrowed weights, without "
        "workspace of the products");
  }
  require_budget(setup);
  if (!setup.layer || !setup.machine || !planners_know_links(setup.topology.description())) return setup;
  const LayerSizes& sizes = setup.layer->sizes;
  StepLinks links{setup.topology, *setup.machine, sizes.expert.work, sizes.row_bytes, setup.backward};
  if (links_differ(links)) setup.planner.links = std::move(links);
  return setup;
}

}  // namespace evenkeel
