#include "evenkeel/placement/incremental/internal/move_budget.h"

#include <algorithm>

namespace evenkeel::internal {

namespace {

struct Segment {
  std::size_t layer = 0;
  std::size_t from = 0;  // indices of offers
  std::size_t to = 0;
  int moves = 0;
  double gain = 0;

  bool steeper_than(const Segment& other) const {
    const double mine = gain * other.moves;
    const double theirs = other.gain * moves;
    if (mine != theirs) return mine > theirs;
    return layer != other.layer ? layer < other.layer : from < other.from;
  }
};

Segment segment(std::span<const MoveOffer> offers, std::size_t layer, std::size_t from, std::size_t to) {
  return {layer, from, to, offers[to].moves - offers[from].moves, offers[from].value - offers[to].value};
}

// Lists the segments of the lower convex hull, starting at the first offer.
void list_hull(std::span<const MoveOffer> offers, std::size_t layer, const Deadline& deadline,
               std::vector<Segment>& segments) {
  for (std::size_t from = 0; from + 1 < offers.size();) {
    if (deadline.passed()) {
      segments.push_back(segment(offers, layer, from, offers.size() - 1));
      return;
    }
    Segment best = segment(offers, layer, from, from + 1);
    for (std::size_t to = from + 2; to < offers.size(); ++to) {
      const Segment next = segment(offers, layer, from, to);
      if (next.gain * best.moves >= best.gain * next.moves) best = next;
    }
    segments.push_back(best);
    from = best.to;
  }
}

// Takes offers that the hull skips, or whose segment had too many moves.
void spend_rest(std::span<const std::vector<MoveOffer>> offers, int left, std::vector<std::size_t>& taken) {
  for (;;) {
    Segment best;
    for (std::size_t l = 0; l < offers.size(); ++l)
      for (std::size_t to = taken[l] + 1; to < offers[l].size(); ++to) {
        const Segment next = segment(offers[l], l, taken[l], to);
        if (next.moves <= left && next.gain > best.gain) best = next;
      }
    if (best.gain <= 0) return;
    taken[best.layer] = best.to;
    left -= best.moves;
  }
}

}  // namespace

void keep_useful(std::vector<MoveOffer>& offers) {
  std::ranges::stable_sort(offers, [](const MoveOffer& a, const MoveOffer& b) {
    return a.moves != b.moves ? a.moves < b.moves : a.value < b.value;
  });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < offers.size(); ++i)
    if (kept == 0 || offers[i].value < offers[kept - 1].value) offers[kept++] = offers[i];
  offers.resize(kept);
}

double most_gain(std::span<const std::vector<MoveOffer>> offers) {
  double gain = 0;
  for (const auto& of_layer : offers) gain += of_layer.front().value - of_layer.back().value;
  return gain;
}

std::vector<std::size_t> spend_moves(std::span<const std::vector<MoveOffer>> offers, int max_moves,
                                     double spare, const Deadline& deadline) {
  std::vector<Segment> segments;
  for (std::size_t l = 0; l < offers.size(); ++l) list_hull(offers[l], l, deadline, segments);
  std::ranges::stable_sort(segments, [](const Segment& a, const Segment& b) { return a.steeper_than(b); });
  std::vector<std::size_t> taken(offers.size(), 0);
  int left = max_moves;
  double excess = most_gain(offers);
  const auto is_enough = [&] { return spare > 0 && excess <= spare; };
  for (const Segment& s : segments) {
    if (is_enough()) break;
    if (taken[s.layer] != s.from || s.moves > left) continue;
    taken[s.layer] = s.to;
    left -= s.moves;
    excess -= s.gain;
  }
  if (!is_enough()) spend_rest(offers, left, taken);
  return taken;
}

}  // namespace evenkeel::internal
