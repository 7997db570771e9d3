#include "evenkeel/sim/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"

namespace evenkeel {

namespace {

// Sets one number in a request. Errors name `argument`.
class Setter {
 public:
  Setter(std::string_view over, std::string argument) : argument_(std::move(argument)) {
    const std::size_t equals = over.find('=');
    name_ = over.substr(0, equals);
    if (equals == std::string_view::npos || !knows(name_))
      throw InvalidArgument(
          argument_, fmt::format("'{}'", over),
          "NAME=VALUE,VALUE,... with one NAME of ranks, step-tokens, top-k, budget, link, slots, "
          "imbalance-threshold, min-segment");
    values_ = split(over.substr(equals + 1), ',');
  }

  const std::string& name() const { return name_; }
  const std::vector<std::string>& values() const { return values_; }

  CompareRequest with(CompareRequest request, const std::string& value) const {
    if (name_ == "ranks") set_ranks(request.machine, value);
    if (name_ == "step-tokens") request.cut.tokens = whole(value, kAnySize);
    if (name_ == "top-k") request.cut.top_k = static_cast<int>(whole(value, 1 << 20));
    if (name_ == "budget") request.machine.budget = parse_bytes(value, argument_);
    if (name_ == "link") set_link(request.machine, value);
    if (name_ == "slots") request.slots = static_cast<int>(whole(value, 1 << 20));
    if (name_ == "imbalance-threshold")
      request.machine.planner.imbalance_threshold_thousandths = parse_thousandths(argument_, value, 0);
    if (name_ == "min-segment") request.machine.planner.min_segment = whole(value, kAnySize);
    return request;
  }

 private:
  static bool knows(std::string_view name) {
    constexpr std::array<std::string_view, 8> names = {
        "ranks", "step-tokens", "top-k", "budget", "link", "slots", "imbalance-threshold", "min-segment"};
    return std::ranges::find(names, name) != names.end();
  }
  std::int64_t whole(const std::string& value, std::int64_t most) const {
    return parse_whole(argument_, value, 1, most);
  }
  void require_levels(const Topology& topology) const {
    const Topology::Description& all = topology.description();
    const int of_node = topology.num_ranks() / topology.num_nodes();
    bool alike = all.devices_per_rank == 1;
    for (std::size_t rank = 0; rank < all.node_of_rank.size(); ++rank)
      alike &= all.node_of_rank[rank] == static_cast<int>(rank) / of_node;
    if (!alike || !all.links.empty() || !all.speeds.empty() || !all.capacities.empty())
      throw InvalidArgument(
          argument_,
          name_ + " cannot vary: the topology has unequal nodes, or links, speeds or capacities by rank",
          "a topology of equal nodes");
  }
  void set_ranks(SimRequest& machine, const std::string& value) const {
    require_levels(machine.topology);
    const int ranks = static_cast<int>(whole(value, max_ranks));
    const int of_node = std::min(ranks, machine.topology.num_ranks() / machine.topology.num_nodes());
    if (ranks % of_node != 0)
      throw InvalidArgument(argument_, fmt::format("{} ranks", ranks),
                            fmt::format("a multiple of {}, the ranks of a node", of_node));
    const Topology::Description& all = machine.topology.description();
    machine.topology = Topology::uniform(ranks / of_node, of_node, all.within, all.across);
  }
  void set_link(SimRequest& machine, const std::string& value) const {
    require_levels(machine.topology);
    if (!machine.topology_has_links)
      throw InvalidArgument(argument_, "link cannot vary: the topology does not describe links",
                            "a topology with links");
    Topology::Description all = machine.topology.description();
    (machine.topology.num_nodes() > 1 ? all.across : all.within).gigabytes_per_s =
        parse_number(argument_, value, bandwidth_range.least, bandwidth_range.most);
    machine.topology = Topology(std::move(all));
  }

  std::string argument_;
  std::string name_;
  std::vector<std::string> values_;
};

SweptMethod swept(const Sweep& sweep, const std::string& name) {
  SweptMethod method{.name = name};
  std::vector<std::string> undecided, again;
  for (const SweepPoint& point : sweep.points) {
    const MethodSummary* const sum = point.compared.summary_of(name);
    const auto answer = sum == nullptr ? MethodSummary::Answer::does_not_pay : sum->answer;
    if (answer == MethodSummary::Answer::not_enough_data) undecided.push_back(point.value);
    if (method.stops_at && answer == MethodSummary::Answer::pays) again.push_back(point.value);
    if (method.stops_at) continue;
    if (answer == MethodSummary::Answer::pays) {
      if (!method.pays_from) method.pays_from = point.value;
      method.pays_until = point.value;
    }
    if (answer == MethodSummary::Answer::does_not_pay && method.pays_from) method.stops_at = point.value;
  }
  if (!method.pays_from)
    method.sentence = "pays at none of them";
  else if (method.pays_from == method.pays_until)
    method.sentence = fmt::format("pays at {}", *method.pays_from);
  else
    method.sentence = fmt::format("pays from {} to {}", *method.pays_from, *method.pays_until);
  if (method.stops_at) method.sentence += fmt::format(", and no longer at {}", *method.stops_at);
  if (!again.empty()) method.sentence += fmt::format("; pays again at {}", fmt::join(again, ", "));
  if (!undecided.empty())
    method.sentence += fmt::format("; not enough data at {}", fmt::join(undecided, ", "));
  return method;
}

// The phase that takes the longest in plain EP's step. The weights phase is left out, because it runs in
// parallel to other phases.
SimPhase largest_part(const SweepPoint& point) {
  PhaseSeconds parts = point.compared.summaries.front().parts;
  parts[static_cast<std::size_t>(SimPhase::weights)] = 0;
  return static_cast<SimPhase>(std::ranges::max_element(parts) - parts.begin());
}

std::string bottleneck_of(const Sweep& sweep) {
  if (!sweep.points.front().compared.comparison.has_seconds) return {};
  const auto share = [](const SweepPoint& point) {
    const MethodSummary& plain = point.compared.summaries.front();
    return 100 * plain.parts[static_cast<std::size_t>(largest_part(point))] / plain.seconds->mean;
  };
  std::string text;
  std::optional<SimPhase> before;
  for (const SweepPoint& point : sweep.points) {
    const SimPhase part = largest_part(point);
    if (part == before) continue;
    text += fmt::format("{}at {} {} takes the largest part of plain EP's step ({:.0f} %)",
                        text.empty() ? "" : "; ", point.value,
                        part == SimPhase::plan ? "starting layers (counts, plan, messages)" : name_of(part),
                        share(point));
    before = part;
  }
  return text;
}

}  // namespace

Sweep sweep(std::span<const Recording> recordings, std::span<const Recording> place_from,
            const CompareRequest& request, std::string_view over, const std::string& argument,
            const SimProgress& progress) {
  const Setter setter(over, argument);
  Sweep made{.over = setter.name(), .points = {}, .methods = {}, .bottleneck = {}};
  std::vector<CompareRequest> requests;  // all made first, so that a bad value throws before any work
  for (const std::string& value : setter.values()) requests.push_back(setter.with(request, value));
  const int count = static_cast<int>(requests.size());
  for (int i = 0; i < count; ++i) {
    const auto part = [&](int done, int of) { progress(i * of + done, count * of); };
    made.points.push_back({setter.values()[static_cast<std::size_t>(i)],
                           compare_recordings(recordings, place_from, requests[static_cast<std::size_t>(i)],
                                              progress ? SimProgress(part) : SimProgress())});
  }
  for (const SweepPoint& point : made.points)
    for (const MethodResult& method : point.compared.comparison.methods) {
      const std::string& name = method.method.name;
      if (name != "ep" && std::ranges::find(made.methods, name, &SweptMethod::name) == made.methods.end())
        made.methods.push_back(swept(made, name));
    }
  made.bottleneck = bottleneck_of(made);
  return made;
}

}  // namespace evenkeel
