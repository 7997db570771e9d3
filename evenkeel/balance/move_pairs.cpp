#include "evenkeel/balance/move_pairs.h"

#include <bit>

namespace evenkeel {

void MovePairs::reserve(std::size_t moves) {
  before_.reserve(moves);
  used_.reserve(moves);
  if (places_.size() < 2 * moves) places_.resize(std::bit_ceil(2 * moves));
}

void MovePairs::clear() {
  for (std::size_t place : used_) places_[place] = {};
  used_.clear();
  before_.clear();
}

void MovePairs::add(RankId from, RankId to) {
  if (2 * (before_.size() + 1) > places_.size()) grow();
  const std::size_t at = find(key(from, to));
  Place& place = places_[at];
  if (place.key == 0) used_.push_back(at);
  place.key = key(from, to);
  before_.push_back(place.latest);
  place.latest = static_cast<std::uint32_t>(before_.size() - 1);
}

void MovePairs::grow() {
  std::vector<Place> few(std::bit_ceil(4 * (before_.size() + 1)));
  few.swap(places_);
  for (std::size_t& place : used_) {
    const std::size_t at = find(few[place].key);
    places_[at] = few[place];
    place = at;
  }
}

std::size_t MovePairs::find(std::uint64_t key) const {
  const std::size_t mask = places_.size() - 1;
  std::size_t at = (key * 0x9e3779b97f4a7c15ULL >> 20) & mask;
  while (places_[at].key != 0 && places_[at].key != key) at = (at + 1) & mask;
  return at;
}

}  // namespace evenkeel
