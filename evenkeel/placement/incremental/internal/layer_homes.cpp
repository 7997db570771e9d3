#include "evenkeel/placement/incremental/internal/layer_homes.h"

#include <algorithm>

namespace evenkeel {

LayerHomes::LayerHomes(const LayerPlacement& placement, std::span<const double> loads)
    : loads_(loads),
      on_rank_(static_cast<std::size_t>(placement.num_ranks())),
      homes_(static_cast<std::size_t>(placement.num_experts())),
      held_(on_rank_.size() * homes_.size(), 0),
      rank_load_(on_rank_.size() * num_recordings(), 0.0) {
  for (ExpertId e : indices<ExpertId>(placement.num_experts()))
    for (RankId rank : placement.homes(e)) {
      homes_[e.offset()].push_back(rank.value());
      on_rank_[rank.offset()].push_back(e.value());
      held_[rank.offset() * homes_.size() + e.offset()] = 1;
    }
  for (std::size_t rank = 0; rank < on_rank_.size(); ++rank) measure(rank);
  before_ = held_;
}

LayerHomes::Heaviest LayerHomes::heaviest() const {
  const auto at = static_cast<std::size_t>(std::ranges::max_element(rank_load_) - rank_load_.begin());
  return {at % on_rank_.size(), at / on_rank_.size()};
}

double LayerHomes::heaviest_load() const {
  return std::ranges::max(rank_load_);
}

// Sums are made anew, so that rounding does not gather over many steps.
void LayerHomes::measure(std::size_t rank) {
  for (std::size_t recording = 0; recording < num_recordings(); ++recording) {
    double load = 0;
    for (std::int32_t e : on_rank_[rank]) load += share(static_cast<std::size_t>(e), recording);
    rank_load_[recording * on_rank_.size() + rank] = load;
  }
}

void LayerHomes::spread(std::size_t expert) {
  for (std::int32_t home : homes_[expert]) measure(static_cast<std::size_t>(home));
}

void LayerHomes::add(std::size_t rank, std::size_t expert) {
  homes_[expert].push_back(static_cast<std::int32_t>(rank));
  on_rank_[rank].push_back(static_cast<std::int32_t>(expert));
  held_[rank * homes_.size() + expert] = 1;
  moves_ += held_before(rank, expert) ? 0 : 1;
  spread(expert);
}

void LayerHomes::remove(std::size_t rank, std::size_t expert) {
  std::erase(homes_[expert], static_cast<std::int32_t>(rank));
  std::erase(on_rank_[rank], static_cast<std::int32_t>(expert));
  held_[rank * homes_.size() + expert] = 0;
  moves_ -= held_before(rank, expert) ? 0 : 1;
  spread(expert);
  measure(rank);
}

std::vector<std::vector<int>> LayerHomes::listed(const LayerPlacement& before) const {
  std::vector<std::vector<int>> lists(homes_.size());
  for (std::size_t e = 0; e < homes_.size(); ++e) {
    for (RankId rank : before.homes(ExpertId(e)))
      if (holds(rank.offset(), e)) lists[e].push_back(rank.value());
    const std::size_t kept = lists[e].size();
    for (std::int32_t rank : homes_[e])
      if (!held_before(static_cast<std::size_t>(rank), e)) lists[e].push_back(rank);
    std::sort(lists[e].begin() + static_cast<std::ptrdiff_t>(kept), lists[e].end());
  }
  return lists;
}

}  // namespace evenkeel
