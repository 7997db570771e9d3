#include "evenkeel/device/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "evenkeel/base/error.h"
#include "evenkeel/device/arena_watcher.h"

namespace evenkeel {

namespace {

std::int64_t checked_capacity(const Device& device, std::int64_t budget_bytes) {
  if (budget_bytes == Arena::kNoBudget) return device.memory().available_bytes();
  if (budget_bytes < 0) throw InvalidArgument("budget", fmt::format("{} bytes", budget_bytes), "0 or more");
  return budget_bytes;
}

}  // namespace

Arena::Arena(Device device, std::int64_t budget_bytes)
    : bounded_(budget_bytes != kNoBudget),
      gpu_(device.gpu()),
      capacity_(checked_capacity(device, budget_bytes)),
      range_(device.memory().reserve(capacity_,
                                     bounded_ ? MemorySource::Commit::now : MemorySource::Commit::later)) {
  gaps_.reserve(256);
  // Whole lines only: buffers are also cut from the high end and must begin on a line.
  const std::int64_t usable = capacity_ / kAlignment * kAlignment;
  if (usable > 0) gaps_.push_back({0, usable});
}

Arena::~Arena() {
  EVENKEEL_CHECK(in_use_ == 0);
}

Buffer Arena::allocate(std::int64_t bytes, const char* name, Lifetime lifetime) {
  if (bytes < 0) throw InvalidArgument(name, fmt::format("{} bytes", bytes), "0 or more");
  if (bytes == 0) return {};
  const std::int64_t needed = whole_lines(bytes);
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
    if (gap->bytes >= needed && (best == gaps_.end() || gap->bytes < best->bytes)) best = gap;
  if (best == gaps_.end())
    throw BudgetTooSmall(capacity_, in_use_ + needed, std::string("allocating ") + name);

  const std::int64_t begin = best->begin + (lifetime == Lifetime::step ? best->bytes - needed : 0);
  if (!bounded_) range_->commit(begin, needed);
  best->bytes -= needed;
  if (lifetime == Lifetime::held) best->begin += needed;
  if (best->bytes == 0) gaps_.erase(best);
  in_use_ += needed;
  peak_ = std::max(peak_, in_use_);
  if (watcher_ != nullptr) watcher_->lent({name, begin, needed, lifetime}, in_use_);
  return Buffer(this, {range_->begin() + begin, static_cast<std::size_t>(bytes)});
}

std::int64_t Arena::largest_gap_bytes() const {
  std::int64_t largest = 0;
  for (const Gap& gap : gaps_) largest = std::max(largest, gap.bytes);
  return largest;
}

std::int64_t Arena::largest_gap_bytes_without(const Buffer& buffer) const {
  if (buffer.bytes().empty()) return largest_gap_bytes();
  const std::int64_t begin = buffer.data() - range_->begin();
  std::int64_t joined = whole_lines(std::ssize(buffer.bytes()));
  const std::int64_t end = begin + joined;
  for (const Gap& gap : gaps_)
    if (gap.begin + gap.bytes == begin || gap.begin == end) joined += gap.bytes;
  return std::max(joined, largest_gap_bytes());
}

void Arena::claim(std::int64_t step_bytes, std::int64_t state_bytes, int states) {
  const std::int64_t step = std::max(claimed_step_, step_bytes);
  const std::int64_t all_states = claimed_state_bytes_ + state_bytes * states;
  if (step + all_states > capacity_)
    throw BudgetTooSmall(capacity_, step + all_states, "the steps of a layer");
  claimed_step_ = step;
  claimed_state_bytes_ = all_states;
  claimed_states_ += states;
}

std::int64_t Arena::spare_state_bytes() const {
  return (capacity_ - claimed_step_ - claimed_state_bytes_) / std::max(claimed_states_, 1);
}

void Arena::give_back(std::span<std::byte> bytes) {
  const std::int64_t begin = bytes.data() - range_->begin();
  const std::int64_t size = whole_lines(static_cast<std::int64_t>(bytes.size()));
  in_use_ -= size;
  if (watcher_ != nullptr) watcher_->given_back(begin, in_use_);

  const auto next = std::ranges::lower_bound(gaps_, begin, {}, &Gap::begin);
  const auto gap = gaps_.insert(next, {begin, size});
  const auto join_next = [&](std::vector<Gap>::iterator at) {
    if (at + 1 == gaps_.end() || at->begin + at->bytes != (at + 1)->begin) return;
    at->bytes += (at + 1)->bytes;
    gaps_.erase(at + 1);
  };
  join_next(gap);
  if (gap != gaps_.begin()) join_next(gap - 1);
}

}  // namespace evenkeel
