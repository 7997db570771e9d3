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
  // Where a budget ends amid a line, buffers cut from the high end would begin amid one.
  const std::int64_t whole_lines = capacity_ / kAlignment * kAlignment;
  if (whole_lines > 0) gaps_.push_back({0, whole_lines});
}

Arena::~Arena() {
  EVENKEEL_CHECK(in_use_ == 0);
}

Buffer Arena::allocate(std::int64_t bytes, const char* name, Lifetime lifetime) {
  if (bytes < 0) throw InvalidArgument(name, fmt::format("{} bytes", bytes), "0 or more");
  if (bytes == 0) return {};
  const std::int64_t needed = rounded(bytes);
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

std::int64_t Arena::largest_gap_bytes_without(std::initializer_list<const Buffer*> buffers) const {
  const auto begin_of = [&](const Buffer& buffer) { return buffer.data() - range_->begin(); };
  // Of the gap or buffer that begins there; where none does, the same place.
  const auto end_of = [&](std::int64_t begin) {
    for (const Gap& gap : gaps_)
      if (gap.begin == begin) return begin + gap.bytes;
    for (const Buffer* buffer : buffers)
      if (!buffer->bytes().empty() && begin_of(*buffer) == begin)
        return begin + rounded(static_cast<std::int64_t>(buffer->bytes().size()));
    return begin;
  };
  std::int64_t largest = 0;
  const auto measure_from = [&](std::int64_t begin) {
    std::int64_t end = begin;
    for (std::int64_t next = end_of(end); next != end; next = end_of(end)) end = next;
    largest = std::max(largest, end - begin);
  };
  for (const Gap& gap : gaps_) measure_from(gap.begin);
  for (const Buffer* buffer : buffers)
    if (!buffer->bytes().empty()) measure_from(begin_of(*buffer));
  return largest;
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
  const std::int64_t size = rounded(static_cast<std::int64_t>(bytes.size()));
  in_use_ -= size;
  if (watcher_ != nullptr) watcher_->given_back(begin, in_use_);

  auto next = std::lower_bound(gaps_.begin(), gaps_.end(), begin,
                               [](const Gap& gap, std::int64_t at) { return gap.begin < at; });
  const bool joins_next = next != gaps_.end() && begin + size == next->begin;
  const auto before = next - 1;
  const bool joins_before = next != gaps_.begin() && before->begin + before->bytes == begin;
  if (joins_before && joins_next) {
    before->bytes += size + next->bytes;
    gaps_.erase(next);
  } else if (joins_before) {
    before->bytes += size;
  } else if (joins_next) {
    *next = {begin, size + next->bytes};
  } else {
    gaps_.insert(next, {begin, size});
  }
}

}  // namespace evenkeel
