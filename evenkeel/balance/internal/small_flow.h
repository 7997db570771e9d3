// Whether loads fit on the ranks where each expert may be, and how much of it goes where: a maximum flow.
//
// Problem     Experts have a load and a set of ranks; ranks have spare capacity. On some ranks an expert must
//             have at least a given amount. Place all loads.
// Method      What an expert must have is given first. The rest follows along augmenting paths: an expert
//             goes to a rank, another expert's work there moves on, until a rank has spare capacity. The
//             first paths are found depth first, which settles nearly all flows. But a path may carry a
//             single assignment, and two paths may undo each other in turn, as often as a load has
//             assignments. After kMostDeepPaths each path is therefore a shortest one (Edmonds and Karp).
// Cost        O(E P) ranks and experts looked at for a path. After kMostDeepPaths there are at most
//             O(E^2 P (E + P)) shortest paths, however large the loads are; seldom more than a few.
//             No allocation once reserved.
// Guarantee   Exact, unless the caller's limit of visits ends it first. At most 64 ranks.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace evenkeel::internal {

class SmallFlow {
 public:
  using Ranks = std::uint64_t;  // a set of ranks

  static constexpr int kMostDeepPaths = 128;

  explicit SmallFlow(int most_deep_paths = kMostDeepPaths) : most_deep_paths_(most_deep_paths) {}

  static Ranks only(std::size_t rank) { return Ranks{1} << rank; }
  template <class Visit>
  static void for_each_rank(Ranks set, Visit visit) {
    for (; set != 0; set &= set - 1) visit(static_cast<std::size_t>(std::countr_zero(set)));
  }

  void reserve(std::size_t experts, std::size_t ranks) {
    rest_.reserve(experts);
    allowed_.reserve(experts);
    for (auto* by_pair : {&least_, &given_}) by_pair->reserve(experts * ranks);
    space_.reserve(ranks);
    reached_by_.reserve(ranks);
    queue_.reserve(ranks);
  }

  // Nothing is placed yet.
  void begin(std::span<const std::int64_t> loads, std::span<const Ranks> homes,
             std::span<const std::int64_t> space) {
    ranks_ = space.size();
    rest_.assign(loads.begin(), loads.end());
    allowed_.assign(homes.begin(), homes.end());
    space_.assign(space.begin(), space.end());
    least_.assign(loads.size() * ranks_, 0);
    given_.assign(loads.size() * ranks_, 0);
  }

  // The expert may be on this rank too, with at least so much.
  void allow(std::size_t expert, std::size_t rank, std::int64_t least) {
    allowed_[expert] |= only(rank);
    least_[at(expert, rank)] = given_[at(expert, rank)] = least;
    rest_[expert] -= least;
    space_[rank] -= least;
  }

  // Whether all loads fit. Looks at `most_visits` ranks at most: false too where these do not suffice.
  bool place_all(std::int64_t most_visits = std::numeric_limits<std::int64_t>::max()) {
    most_visits_ = most_visits;
    visits_ = 0;
    deep_paths_left_ = most_deep_paths_;
    const auto is_negative = [](std::int64_t amount) { return amount < 0; };
    if (std::ranges::any_of(space_, is_negative) || std::ranges::any_of(rest_, is_negative)) return false;
    for (std::size_t e = 0; e < rest_.size(); ++e)
      if (!place_along_deep_paths(e) && (deep_paths_left_ > 0 || !place_along_shortest_paths(e)))
        return false;
    return true;
  }

  std::int64_t visits() const { return visits_; }  // ranks that the latest place_all() looked at
  Ranks allowed(std::size_t expert) const { return allowed_[expert]; }
  std::int64_t given(std::size_t expert, std::size_t rank) const { return given_[at(expert, rank)]; }

 private:
  struct Step {
    std::size_t expert;
    std::size_t from;  // ranks_ where the path begins: the expert is not placed yet
  };

  bool has_visits() const { return visits_ < most_visits_; }

  // Whether all of the expert is placed; if not, no path is left, or none of this kind.
  bool place_along_deep_paths(std::size_t expert) {
    for (bool moved = true; rest_[expert] > 0 && moved;) {
      moved = false;
      seen_ = 0;
      for_each_rank(allowed_[expert], [&](std::size_t rank) {
        std::int64_t amount = rest_[expert];
        if (amount == 0 || deep_paths_left_ == 0 || !make_space(rank, amount)) return;
        --deep_paths_left_;
        give(expert, rank, amount);
        seen_ = 0;
        moved = true;
      });
    }
    return rest_[expert] == 0;
  }

  // Takes `amount`, or less, of a rank's spare capacity, after moving other experts' pieces on if there is
  // none. A rank seen since the last path was found leads nowhere, or is on the way here: looking at it again
  // would find nothing new, at a cost that grows exponentially.
  bool make_space(std::size_t rank, std::int64_t& amount) {
    if ((seen_ & only(rank)) != 0 || !has_visits()) return false;
    ++visits_;
    if (space_[rank] > 0) {
      amount = std::min(amount, space_[rank]);
      space_[rank] -= amount;
      return true;
    }
    seen_ |= only(rank);
    for (std::size_t e = 0; e < rest_.size(); ++e) {
      std::int64_t moving = std::min(amount, movable(e, rank));
      bool made = false;
      for_each_rank(moving > 0 ? allowed_[e] : 0, [&](std::size_t other) {
        if (made || !make_space(other, moving)) return;
        move(e, rank, other, moving);
        made = true;
      });
      if (made) {
        amount = moving;
        return true;
      }
    }
    return false;
  }

  bool place_along_shortest_paths(std::size_t expert) {
    while (rest_[expert] > 0 && find_shortest_path(expert)) push_along_path(expert);
    return rest_[expert] == 0;
  }

  // From the expert to a rank with spare capacity, which is then the last in the queue.
  bool find_shortest_path(std::size_t expert) {
    queue_.clear();
    reached_by_.resize(ranks_);
    Ranks reached = 0;
    const auto reach = [&](Ranks ranks, Step by) {
      for_each_rank(ranks & ~reached, [&](std::size_t rank) {
        reached |= only(rank);
        reached_by_[rank] = by;
        queue_.push_back(rank);
      });
    };
    reach(allowed_[expert], {expert, ranks_});
    for (std::size_t i = 0; i < queue_.size() && has_visits(); ++i) {
      ++visits_;
      const std::size_t rank = queue_[i];
      if (space_[rank] > 0) {
        queue_.resize(i + 1);
        return true;
      }
      for (std::size_t e = 0; e < rest_.size(); ++e)
        if (movable(e, rank) > 0) reach(allowed_[e], {e, rank});
    }
    return false;
  }

  void push_along_path(std::size_t expert) {
    const std::size_t last = queue_.back();
    std::int64_t amount = std::min(rest_[expert], space_[last]);
    std::size_t first = last;
    for (; reached_by_[first].from != ranks_; first = reached_by_[first].from)
      amount = std::min(amount, movable(reached_by_[first].expert, reached_by_[first].from));
    for (std::size_t to = last; to != first; to = reached_by_[to].from)
      move(reached_by_[to].expert, reached_by_[to].from, to, amount);
    space_[last] -= amount;
    give(expert, first, amount);
  }

  std::size_t at(std::size_t expert, std::size_t rank) const { return expert * ranks_ + rank; }
  std::int64_t movable(std::size_t expert, std::size_t rank) const {
    return given_[at(expert, rank)] - least_[at(expert, rank)];
  }
  void move(std::size_t expert, std::size_t from, std::size_t to, std::int64_t amount) {
    given_[at(expert, from)] -= amount;
    given_[at(expert, to)] += amount;
  }
  void give(std::size_t expert, std::size_t rank, std::int64_t amount) {
    given_[at(expert, rank)] += amount;
    rest_[expert] -= amount;
  }

  std::size_t ranks_ = 0;
  std::vector<std::int64_t> rest_;   // [E], still to be placed
  std::vector<Ranks> allowed_;       // [E]
  std::vector<std::int64_t> space_;  // [P], spare capacity left
  std::vector<std::int64_t> least_;  // [E][P]
  std::vector<std::int64_t> given_;  // [E][P]
  std::vector<Step> reached_by_;     // [P], on a shortest path
  std::vector<std::size_t> queue_;   // of ranks
  Ranks seen_ = 0;                   // since the last deep path
  int most_deep_paths_;
  int deep_paths_left_ = 0;
  std::int64_t visits_ = 0;
  std::int64_t most_visits_ = 0;
};

}  // namespace evenkeel::internal
