#include "evenkeel/layer/internal/layer_backend.h"

#include <fmt/format.h>

#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/base/hash.h"
#include "evenkeel/comm/gather.h"

namespace evenkeel::internal {

namespace {

void require_layer(const LayerParts& layer) {
  const auto& [comm, arena, shape, placement, options] = layer;
  const int ranks = comm.size();
  if (placement.num_experts() != shape.num_experts || placement.num_ranks() != ranks)
    throw InvalidArgument(
        "placement", fmt::format("{} experts on {} ranks", placement.num_experts(), placement.num_ranks()),
        fmt::format("{} experts on {} ranks", shape.num_experts, ranks));
  if (shape.top_k < 1) throw InvalidArgument("top_k", fmt::format("{}", shape.top_k), "1 or more");
  constexpr std::int64_t kMostAssignments = std::int64_t{1} << 30;
  if (options.max_tokens < 1 || options.max_tokens > kMostAssignments / shape.top_k / ranks)
    throw InvalidArgument("max_tokens", fmt::format("{}", options.max_tokens),
                          fmt::format("1..{}", kMostAssignments / shape.top_k / ranks));
  if (options.states_in_flight < 1)
    throw InvalidArgument("states_in_flight", fmt::format("{}", options.states_in_flight), "1 or more");
  if (const auto* cpu = std::get_if<CpuOptions>(&options.device);
      cpu != nullptr && !cpu->node_of_rank.empty()) {
    if (std::ssize(cpu->node_of_rank) != ranks)
      throw InvalidArgument("node_of_rank", fmt::format("{} ranks", cpu->node_of_rank.size()),
                            fmt::format("the communicator's {}", ranks));
    if (arena.is_bounded())
      throw InvalidArgument("node_of_rank", "does not work in an arena with a budget",
                            "an empty list, or an arena without a budget");
  } else if (cpu != nullptr && cpu->sum_in_nodes) {
    throw InvalidArgument("sum_in_nodes", "needs node_of_rank", "node_of_rank as well, or false");
  }
  if (!std::holds_alternative<CpuOptions>(options.device) && layer.other_device() == nullptr)
    throw InvalidArgument("device", "is null", "CpuOptions, or on_gpu(stream)");
}

constexpr std::uint64_t kLayerVersion = 1;

std::uint64_t hash_of(const LayerPlacement& placement) {
  Hash hash;
  hash.add(placement.num_experts(), placement.num_ranks());
  for (ExpertId expert : indices<ExpertId>(placement.num_experts()))
    for (RankId home : placement.homes(expert)) hash.add(expert.value(), home.value());
  return hash.value();
}

template <class Number>
std::uint64_t hash_of(const std::vector<Number>& numbers) {
  Hash hash;
  for (Number number : numbers) hash.add(number);
  return hash.value();
}

std::uint64_t hash_of(const Machine& machine) {
  Hash hash;
  for (const MachineNumber& number : machine_numbers()) hash.add(machine.*number.value);
  return hash.value();
}

std::uint64_t hash_of(const StepLinks& links) {
  const Topology::Description& topology = links.topology.description();
  Hash hash;
  for (const int node : topology.node_of_rank) hash.add(node);
  for (const Link& link : {topology.within, topology.across}) hash.add(link.gigabytes_per_s, link.latency_us);
  const ExpertWork& expert = links.expert;
  return hash
      .add(hash_of(links.machine), expert.elements, expert.outputs, expert.bytes, links.row_bytes,
           links.backward)
      .value();
}

std::uint64_t hash_of(const PlannerOptions& planner) {
  const SpillCosts costs = planner.costs.value_or(SpillCosts{});
  return Hash()
      .add(planner.kind, planner.capacity_factor_thousandths, planner.min_segment,
           planner.imbalance_threshold_thousandths, planner.borrow_slots, planner.costs.has_value(),
           costs.seconds_per_assignment, costs.seconds_per_transfer, costs.seconds_per_step,
           planner.links ? hash_of(*planner.links) : 0)
      .value();
}

std::uint64_t hash_of(const MemoryOptions& memory) {
  return Hash()
      .add(memory.recompute, memory.rule.kind, memory.rule.count, hash_of(memory.rule.bins), memory.keep_plan,
           hash_of(memory.cost))
      .value();
}

}  // namespace

std::vector<int> first_to_differ(Communicator& comm, std::span<const Digest> digests) {
  std::vector<std::uint64_t> mine;
  for (const Digest& digest : digests) mine.push_back(digest.value);
  const std::vector<std::uint64_t> all = gather(comm, std::span<const std::uint64_t>(mine), "agreement");
  std::vector<int> differing(mine.size(), -1);
  for (std::size_t i = all.size(); i-- > 0;)
    if (all[i] != all[i % mine.size()]) differing[i % mine.size()] = static_cast<int>(i / mine.size());
  return differing;
}

LayerParts::LayerParts(Communicator& communicator, Arena& memory, const MoeShape& moe, LayerPlacement homes,
                       MoeOptions given)
    : comm(communicator), arena(memory), shape(moe), placement(std::move(homes)), options(std::move(given)) {
  require_layer(*this);
}

void LayerParts::require_agreement() const {
  const std::vector<Digest> own = digests();
  const std::vector<int> differing = first_to_differ(comm, own);
  for (std::size_t i = 0; i < own.size(); ++i)
    if (differing[i] >= 0)
      throw InvalidArgument(own[i].what, fmt::format("rank {} has another value than rank 0", differing[i]),
                            "the same on every rank");
}

// Digests of everything that must be equal on all ranks of a layer.
std::vector<Digest> LayerParts::digests() const {
  const ExpertShape& expert = shape.expert;
  const LayerDevice* const other = other_device();
  const auto digest = [](const char* what, const auto& value) {
    return Digest{what, Hash().add(value).value()};
  };
  return {digest("version of evenkeel", kLayerVersion),
          digest("shape.num_experts", shape.num_experts),
          digest("shape.top_k", shape.top_k),
          digest("shape.expert.hidden", expert.hidden),
          digest("shape.expert.intermediate", expert.intermediate),
          digest("shape.expert.activation", expert.activation),
          digest("shape.expert.biases", expert.biases),
          digest("shape.expert.type", expert.type),
          {"options.planner", hash_of(options.planner)},
          digest("options.max_tokens", options.max_tokens),
          digest("options.with_backward", options.with_backward),
          digest("options.states_in_flight", options.states_in_flight),
          {"options.device", other == nullptr ? 0 : other->digest()},
          {"options.memory", other == nullptr ? hash_of(options.cpu().memory) : 0},
          {"options.node_of_rank", other == nullptr ? hash_of(options.cpu().node_of_rank) : 0},
          digest("options.sum_in_nodes", other == nullptr && options.cpu().sum_in_nodes),
          {"whether the arena has a budget", arena.is_bounded()},
          {"placement", hash_of(placement)}};
}

}  // namespace evenkeel::internal
