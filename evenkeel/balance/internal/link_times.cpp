#include "evenkeel/balance/internal/link_times.h"

#include <algorithm>
#include <cmath>

#include "evenkeel/cost/links.h"

namespace evenkeel::internal {

namespace {

constexpr double kPicoseconds = 1e12;
constexpr double kMebibyte = 1 << 20;

std::int64_t whole(double number) {
  return std::llround(std::clamp(number, 0.0, 9e18));
}

// Capped, so that sums stay in range on machines so slow, or with items so large, that one item takes ages.
std::int64_t picoseconds(double seconds) {
  return whole(std::min(seconds, 1e6) * kPicoseconds);
}

}  // namespace

LinkTimes::LinkTimes(const StepLinks& links)
    : nic_(nics_of(links.machine, links.topology)),
      ranks_of_(static_cast<std::size_t>(links.topology.num_nodes())),
      ramp_bytes_(whole(links.machine.ramp_bytes)),
      row_bytes_(whole(links.row_bytes)) {
  const Topology::Description& topology = links.topology.description();
  for (RankId rank : indices<RankId>(links.topology.num_ranks()))
    ranks_of_[node_.emplace_back(links.topology.node_of(rank).offset())].push_back(rank);
  const auto wire = [](const Link& link) {
    return Wire{picoseconds(link.latency_us * 1e-6),
                std::max<std::int64_t>(1, picoseconds(evenkeel::wire_seconds(link, kMebibyte)))};
  };
  within_ = wire(topology.within);
  across_ = wire(topology.across);
  slower_ = static_cast<std::int64_t>(
      std::clamp<Picoseconds>(across_.of_mebibyte / within_.of_mebibyte, 0, 1 << 10));
  const StepParts parts = step_parts(links.machine, links.expert, links.backward);
  row_trips_ = whole(parts.row_trips);
  borrowed_bytes_ = whole(parts.borrowed_bytes);
  assignment_ = picoseconds(parts.assignment_seconds);
  packing_ = picoseconds(kMovingCostFactor * parts.packing_seconds);
  moving_ = picoseconds(kMovingCostFactor * parts.moving_seconds);
}

void LinkTimes::read(const Counts& counts, const LayerPlacement& placement,
                     std::span<const std::int64_t> base_load) {
  placement_ = &placement;
  base_load_ = base_load;
  loads_ = counts.loads();
  num_experts_ = loads_.size();
  rows_ = counts.rows();
  const std::size_t ranks = num_ranks();
  deal_.reserve(ranks);
  sends_.reserve(ranks);
  receives_.reserve(ranks);
  for (Ports* ports : {&at_home_, &ports_}) ports->clear(ranks);
  if (counts.has_sources()) add_home_rows(placement);
}

// Adds up rows by node first, so that most additions run over whole rows of counts.
void LinkTimes::add_home_rows(const LayerPlacement& placement) {
  node_rows_.assign(num_nodes() * num_experts_, 0);
  single_home_.assign(num_experts_, 0);
  for (ExpertId expert : indices<ExpertId>(num_experts_))
    if (placement.homes(expert).size() == 1) single_home_[expert.offset()] = ~std::int64_t{0};
  for (RankId source : indices<RankId>(num_ranks())) {
    const std::int64_t* row = &rows_[source.offset() * num_experts_];
    std::int64_t* sums = &node_rows_[node(source) * num_experts_];
    std::int64_t sent = 0, own = 0, in_node = 0;
    for (std::size_t e = 0; e < num_experts_; ++e) {
      sums[e] += row[e];
      sent += row[e] & single_home_[e];
    }
    for (RankId rank : ranks_of(node(source))) {
      std::int64_t here = 0;
      for (ExpertId expert : placement.natives(rank))
        here += row[expert.offset()] & single_home_[expert.offset()];
      in_node += here;
      if (rank == source) own = here;
    }
    at_home_.sent[source.offset()] = in_node - own;
    at_home_.left[nic_[source.offset()]] += sent - in_node;
  }
  for (RankId rank : indices<RankId>(num_ranks()))
    for (ExpertId expert : placement.natives(rank)) {
      if (single_home_[expert.offset()] == 0) continue;
      const std::int64_t in_node = node_rows_[node(rank) * num_experts_ + expert.offset()];
      at_home_.received[rank.offset()] += in_node - count(rank, expert);
      at_home_.reached[nic_[rank.offset()]] += loads_[expert.offset()] - in_node;
    }
}

void LinkTimes::pass(RankId from, RankId to, std::int64_t items) {
  if (from == to) return;
  const bool within = node(from) == node(to);
  (within ? ports_.sent[from.offset()] : ports_.left[nic_[from.offset()]]) += items;
  (within ? ports_.received[to.offset()] : ports_.reached[nic_[to.offset()]]) += items;
}

LinkTimes::Picoseconds LinkTimes::of(const StepPlan& plan) {
  return assignment_ * plan.worst_load(base_load_) + of_rows(plan) + of_moving(plan);
}

LinkTimes::Picoseconds LinkTimes::of_rows(const StepPlan& plan) {
  if (rows_.empty()) return 0;
  ports_ = at_home_;
  for (ExpertId expert : indices<ExpertId>(num_experts_)) {
    const auto segments = plan.segments(expert);
    const bool counted = single_home_[expert.offset()] != 0;
    if (segments.empty() || (counted && !plan.splits(expert, *placement_))) continue;
    if (counted)
      for (RankId source : indices<RankId>(num_ranks()))
        pass(source, placement_->owner(expert), -count(source, expert));
    deal_.begin(segments, num_ranks());
    deal_.deal([&](RankId source) { return count(source, expert); },
               [&](RankId from, RankId to, std::int64_t rows) { pass(from, to, rows); });
  }
  return row_trips_ * exchange(row_bytes_);
}

LinkTimes::Picoseconds LinkTimes::of_moving(const StepPlan& plan) {
  if (!plan.spilled()) return 0;
  ports_.clear(num_ranks());
  sends_.assign(num_ranks(), 0);
  receives_.assign(num_ranks(), 0);
  for (const Transfer& transfer : plan.transfers()) {
    pass(transfer.from, transfer.to, 1);
    ++sends_[transfer.from.offset()];
    ++receives_[transfer.to.offset()];
  }
  return kMovingCostFactor * exchange(borrowed_bytes_) + moving_ +
         packing_ * std::max(std::ranges::max(sends_), std::ranges::max(receives_));
}

// A port's time grows with what passes it, so only the busiest port counts.
LinkTimes::Picoseconds LinkTimes::exchange(std::int64_t item_bytes) const {
  const auto busiest = [&](const std::vector<std::int64_t>& out, const std::vector<std::int64_t>& in) {
    return static_cast<Picoseconds>(std::max(std::ranges::max(out), std::ranges::max(in))) * item_bytes;
  };
  return std::max(wire_seconds(within_, busiest(ports_.sent, ports_.received)),
                  wire_seconds(across_, busiest(ports_.left, ports_.reached)));
}

LinkTimes::Picoseconds LinkTimes::wire_seconds(const Wire& wire, Picoseconds bytes) const {
  if (bytes == 0) return 0;
  constexpr Picoseconds most_bytes = Picoseconds{1} << 70;  // centuries on any link
  bytes = std::min(bytes, most_bytes);
  const Picoseconds ramped = bytes + ramp_bytes_ * bytes / (bytes + ramp_bytes_);
  return wire.latency + ramped * wire.of_mebibyte / static_cast<Picoseconds>(kMebibyte);
}

}  // namespace evenkeel::internal
