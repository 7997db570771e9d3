// Ranks in order of a number that changes, as a tree: what is nearest to a value, without looking at all.
//
// Method      A treap over arrays by rank; equal numbers are in order of ranks, whose hashes are priorities.
// Cost        O(log P) a change or question. No allocation once reset for as many ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel {

class RankSet {
 public:
  void reserve(std::size_t ranks) { nodes_.reserve(ranks); }
  // Empties the set.
  void reset(std::size_t ranks);
  // Adds a rank, or changes its number.
  void set(RankId rank, std::int64_t value);
  // A rank that is not in the set may be dropped.
  void drop(RankId rank);

  bool empty() const { return root_ == none; }
  std::int64_t value(RankId rank) const { return nodes_[rank.offset()].value; }

  // The rank whose number is the least of those from `value` up, or the largest up to it; of equal ones the
  // first.
  std::optional<RankId> at_least(std::int64_t value) const;
  std::optional<RankId> at_most(std::int64_t value) const;
  // The next rank in order of numbers, then of ranks.
  std::optional<RankId> after(RankId rank) const;

 private:
  static constexpr std::int32_t none = -1;

  struct Node {
    std::int64_t value = 0;
    std::int32_t left = none;
    std::int32_t right = none;
    bool held = false;
  };

  Node& at(std::int32_t node) { return nodes_[static_cast<std::size_t>(node)]; }
  const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
  bool before(std::int32_t a, std::int32_t b) const {
    return at(a).value != at(b).value ? at(a).value < at(b).value : a < b;
  }
  static std::uint32_t priority(std::int32_t node) {
    auto mixed = static_cast<std::uint32_t>(node) * 0x9e3779b9U;
    mixed = (mixed ^ (mixed >> 15)) * 0x85ebca6bU;
    return mixed ^ (mixed >> 13);
  }
  void split(std::int32_t tree, std::int32_t node, std::int32_t& less, std::int32_t& more);
  std::int32_t merge(std::int32_t less, std::int32_t more);

  std::vector<Node> nodes_;  // [P]
  std::int32_t root_ = none;
};

}  // namespace evenkeel
