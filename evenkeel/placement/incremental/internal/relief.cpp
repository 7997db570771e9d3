#include "evenkeel/placement/incremental/internal/relief.h"

#include <algorithm>
#include <initializer_list>

namespace evenkeel::internal {

namespace {

// A relief below this part of the load is rounding, or not worth a transfer.
constexpr double kLeastRelief = 1e-6;

class Relief {
 public:
  Relief(const LayerHomes& homes, std::span<const std::int32_t> node_of_rank,
         std::span<const std::int32_t> free_slots, int most_moves)
      : homes_(homes),
        node_of_rank_(node_of_rank),
        free_slots_(free_slots),
        most_moves_(most_moves),
        rank_(homes.heaviest().rank),
        recording_(homes.heaviest().recording),
        heaviest_(homes.rank_load(rank_, recording_)),
        change_(homes.num_recordings() * homes.num_ranks(), 0.0),
        is_touched_(homes.num_ranks(), 0) {}

  std::optional<ReliefStep> find() {
    consider_exchanges();
    consider_giving_up();
    consider_copying_away();
    consider_free_slots();
    if (best_merit_ <= 0) return std::nullopt;
    return best_;
  }

 private:
  using Home = ReliefStep::Home;

  void consider_exchanges() {
    for (std::int32_t m : homes_.on_rank(rank_)) {
      const auto mine = static_cast<std::size_t>(m);
      for (std::size_t other = 0; other < homes_.num_ranks(); ++other) {
        if (other == rank_ || !may_go(mine, other)) continue;
        for (std::int32_t t : homes_.on_rank(other)) {
          const auto theirs = static_cast<std::size_t>(t);
          const double moved = homes_.share(mine, recording_) - homes_.share(theirs, recording_);
          const double heaviest = std::max(heaviest_ - moved, homes_.rank_load(other, recording_) + moved);
          if (heaviest_ - heaviest <= best_merit_) continue;  // not enough even with one move
          if (moved <= 0 || heaviest >= heaviest_ || !may_go(theirs, rank_)) continue;
          consider({{rank_, mine}, {other, theirs}}, {{other, mine}, {rank_, theirs}});
        }
      }
    }
  }

  // The heaviest rank gives up a copy of one expert for a copy of another, of which it then bears a part.
  void consider_giving_up() {
    for (std::int32_t m : homes_.on_rank(rank_)) {
      const auto mine = static_cast<std::size_t>(m);
      if (homes_.homes(mine).size() < 2) continue;
      for (std::size_t e = 0; e < homes_.num_experts(); ++e)
        if (homes_.share(e, recording_, 1) < homes_.share(mine, recording_) - best_merit_ && may_go(e, rank_))
          consider({{rank_, mine}}, {{rank_, e}});
    }
  }

  // Another rank gives up a copy for a copy of an expert on the heaviest rank, which then bears less of it.
  void consider_copying_away() {
    for (std::size_t other = 0; other < homes_.num_ranks(); ++other) {
      if (other == rank_) continue;
      for (std::int32_t t : homes_.on_rank(other)) {
        const auto theirs = static_cast<std::size_t>(t);
        if (homes_.homes(theirs).size() < 2) continue;
        for (std::int32_t m : homes_.on_rank(rank_)) {
          const auto mine = static_cast<std::size_t>(m);
          if (mine == theirs ||
              homes_.share(mine, recording_) - homes_.share(mine, recording_, 1) <= best_merit_)
            continue;
          if (may_go(mine, other)) consider({{other, theirs}}, {{other, mine}});
        }
      }
    }
  }

  void consider_free_slots() {
    for (std::size_t other = 0; other < homes_.num_ranks(); ++other) {
      if (other == rank_ || free_slots_[other] <= 0) continue;
      for (std::int32_t m : homes_.on_rank(rank_)) {
        const auto mine = static_cast<std::size_t>(m);
        if (!may_go(mine, other)) continue;
        consider({}, {{other, mine}});
        consider({{rank_, mine}}, {{other, mine}});
      }
    }
  }

  void consider(std::initializer_list<Home> removed, std::initializer_list<Home> added) {
    const int moves = cost(removed, added);
    if (moves > most_moves_) return;
    const auto net = [&](std::size_t expert) {
      int n = 0;
      for (const Home& home : added) n += home.expert == expert;
      for (const Home& home : removed) n -= home.expert == expert;
      return n;
    };
    touched_.clear();
    const auto reshare = [&](std::size_t expert) {
      for (std::int32_t home : homes_.homes(expert))
        touch(static_cast<std::size_t>(home), expert, net(expert), 1, 1);
    };
    for (const Home& home : removed) {
      if (net(home.expert) != 0) reshare(home.expert);
      touch(home.rank, home.expert, net(home.expert), -1, 0);
    }
    for (const Home& home : added) {
      if (net(home.expert) > 0) reshare(home.expert);
      touch(home.rank, home.expert, net(home.expert), 1, 0);
    }
    double heaviest = 0;
    for (std::size_t rank : touched_) {
      for (std::size_t w = 0; w < homes_.num_recordings(); ++w) {
        double& change = change_[w * homes_.num_ranks() + rank];
        heaviest = std::max(heaviest, homes_.rank_load(rank, w) + change);
        change = 0;
      }
      is_touched_[rank] = 0;
    }
    const double gain = heaviest_ - heaviest;
    if (gain <= heaviest_ * kLeastRelief) return;
    const double merit = gain / std::max(moves, 1);
    if (merit <= best_merit_) return;
    best_merit_ = merit;
    best_.removed.assign(removed);
    best_.added.assign(added);
  }

  // Whether a copy of `expert` may be added to `rank`: it is not there yet, and the expert has a home in that
  // node.
  bool may_go(std::size_t expert, std::size_t rank) const {
    if (homes_.holds(rank, expert)) return false;
    return std::ranges::any_of(homes_.homes(expert), [&](std::int32_t home) {
      return node_of_rank_[static_cast<std::size_t>(home)] == node_of_rank_[rank];
    });
  }

  int cost(std::initializer_list<Home> removed, std::initializer_list<Home> added) const {
    int moves = 0;
    for (const Home& home : added) moves += homes_.held_before(home.rank, home.expert) ? 0 : 1;
    for (const Home& home : removed) moves -= homes_.held_before(home.rank, home.expert) ? 0 : 1;
    return moves;
  }

  // Adds the rank's change of load. The rank will bear `parts_after` shares of the expert, which then has
  // `more_homes` more homes; now it bears `parts_before` shares.
  void touch(std::size_t rank, std::size_t expert, int more_homes, int parts_after, int parts_before) {
    if (is_touched_[rank] == 0) touched_.push_back(rank);
    is_touched_[rank] = 1;
    for (std::size_t w = 0; w < homes_.num_recordings(); ++w)
      change_[w * homes_.num_ranks() + rank] +=
          parts_after * homes_.share(expert, w, more_homes) - parts_before * homes_.share(expert, w);
  }

  const LayerHomes& homes_;
  std::span<const std::int32_t> node_of_rank_;
  std::span<const std::int32_t> free_slots_;
  int most_moves_;
  std::size_t rank_;       // the heaviest rank
  std::size_t recording_;  // the recording in which it is heaviest
  double heaviest_;
  std::vector<double> change_;        // [W, P]
  std::vector<std::size_t> touched_;  // ranks with a changed load
  std::vector<std::uint8_t> is_touched_;
  double best_merit_ = 0;
  ReliefStep best_;
};

}  // namespace

void ReliefStep::apply(LayerHomes& homes) const {
  for (const Home& home : added) homes.add(home.rank, home.expert);
  for (const Home& home : removed) homes.remove(home.rank, home.expert);
}

std::optional<ReliefStep> best_relief(const LayerHomes& homes, std::span<const std::int32_t> node_of_rank,
                                      std::span<const std::int32_t> free_slots, int most_moves) {
  return Relief(homes, node_of_rank, free_slots, most_moves).find();
}

}  // namespace evenkeel::internal
