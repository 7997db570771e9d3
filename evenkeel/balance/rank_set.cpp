#include "evenkeel/balance/rank_set.h"

namespace evenkeel {

void RankSet::reset(std::size_t ranks) {
  nodes_.assign(ranks, Node{});
  root_ = none;
}

void RankSet::set(RankId rank, std::int64_t value) {
  const std::int32_t node = rank.value();
  if (at(node).held && at(node).value == value) return;
  drop(rank);
  at(node) = {.value = value, .left = none, .right = none, .held = true};
  std::int32_t* link = &root_;
  while (*link != none && priority(*link) >= priority(node))
    link = before(node, *link) ? &at(*link).left : &at(*link).right;
  split(*link, node, at(node).left, at(node).right);
  *link = node;
}

void RankSet::drop(RankId rank) {
  const std::int32_t node = rank.value();
  if (!at(node).held) return;
  std::int32_t* link = &root_;
  while (*link != node) link = before(node, *link) ? &at(*link).left : &at(*link).right;
  *link = merge(at(node).left, at(node).right);
  at(node).held = false;
}

std::optional<RankId> RankSet::at_least(std::int64_t value) const {
  std::optional<RankId> best;
  for (std::int32_t node = root_; node != none;) {
    const bool enough = at(node).value >= value;
    if (enough) best = RankId(node);
    node = enough ? at(node).left : at(node).right;
  }
  return best;
}

std::optional<RankId> RankSet::at_most(std::int64_t value) const {
  std::optional<RankId> last;
  for (std::int32_t node = root_; node != none;) {
    const bool little = at(node).value <= value;
    if (little) last = RankId(node);
    node = little ? at(node).right : at(node).left;
  }
  return last ? at_least(at(last->value()).value) : last;
}

std::optional<RankId> RankSet::after(RankId rank) const {
  std::optional<RankId> best;
  for (std::int32_t node = root_; node != none;) {
    const bool later = before(rank.value(), node);
    if (later) best = RankId(node);
    node = later ? at(node).left : at(node).right;
  }
  return best;
}

// Of a tree what comes before the node, and what comes after it.
void RankSet::split(std::int32_t tree, std::int32_t node, std::int32_t& less, std::int32_t& more) {
  std::int32_t* lower = &less;
  std::int32_t* upper = &more;
  while (tree != none) {
    if (before(tree, node)) {
      *lower = tree;
      lower = &at(tree).right;
      tree = *lower;
    } else {
      *upper = tree;
      upper = &at(tree).left;
      tree = *upper;
    }
  }
  *lower = *upper = none;
}

std::int32_t RankSet::merge(std::int32_t less, std::int32_t more) {
  std::int32_t root = none;
  std::int32_t* link = &root;
  while (less != none && more != none) {
    if (priority(less) > priority(more)) {
      *link = less;
      link = &at(less).right;
      less = *link;
    } else {
      *link = more;
      link = &at(more).left;
      more = *link;
    }
  }
  *link = less != none ? less : more;
  return root;
}

}  // namespace evenkeel
