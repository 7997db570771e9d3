#include "evenkeel/exchange/result_rows.h"

#include <algorithm>
#include <ranges>

#include "evenkeel/base/check.h"

namespace evenkeel {

void ResultRows::reserve(std::size_t num_experts) {
  runs_.reserve(num_experts);
  before_.reserve(num_experts + 1);
}

void ResultRows::open(const Dispatched& dispatched, RankId me, std::span<const std::uint8_t> in_ranges) {
  dispatched_ = &dispatched;
  first_token_ = end_token_ = 0;
  reserve(in_ranges.size());
  runs_.clear();
  const Dispatched::Peer own = dispatched.peer(me);
  const auto slots = dispatched.output_row();
  for (std::size_t g = 0; g < dispatched.groups().size(); ++g) {
    const Dispatched::Group& group = dispatched.groups()[g];
    if (in_ranges.empty() || in_ranges[group.expert.offset()] == 0) continue;
    const auto first = slots.begin() + group.begin;
    const auto last = slots.begin() + group.end;
    const auto begin = std::lower_bound(first, last, own.in_position);
    const auto end = std::lower_bound(begin, last, own.in_position + own.in_positions);
    if (begin == end) continue;
    LocalRun& run = runs_.emplace_back();
    run.group = static_cast<std::int32_t>(g);
    run.begin = run.range_begin = run.range_end = begin - slots.begin();
    run.end = end - slots.begin();
    run.slot = *begin;
  }
  std::ranges::sort(runs_, {}, &LocalRun::slot);
  before_.assign(1, 0);
  for (const LocalRun& run : runs_) before_.push_back(before_.back() + run.end - run.begin);
  rows_per_range_ = positions_in_runs();
}

void ResultRows::set_rows_per_range(std::int64_t positions) {
  EVENKEEL_CHECK(positions >= std::min<std::int64_t>(dispatched_->k, positions_in_runs()));
  rows_per_range_ = std::min(positions, positions_in_runs());
}

std::int64_t ResultRows::rows() const {
  ChunkLoad load = dispatched_->load();
  load.own_split = positions_in_runs();
  return chunk_buffers::result_rows(load, rows_per_range_);
}

void ResultRows::fill(std::span<std::int32_t> row_of_position) const {
  const auto slots = dispatched_->output_row();
  for (std::size_t i = 0; i < slots.size(); ++i)
    row_of_position[i] = static_cast<std::int32_t>(held_row(slots[i]));
}

std::int64_t ResultRows::token(std::int64_t position) const {
  const std::int32_t row = dispatched_->input_row()[static_cast<std::size_t>(position)];
  return dispatched_->token_here()[static_cast<std::size_t>(row - dispatched_->own_row)];
}

// The first position of the run, from the current range's end on, whose token is `token` or a later one.
std::int64_t ResultRows::end_before(const LocalRun& run, std::int64_t token) const {
  const auto positions = std::views::iota(run.range_end, run.end);
  return *std::ranges::partition_point(positions, [&](std::int64_t i) { return this->token(i) < token; });
}

std::int64_t ResultRows::positions_before(std::int64_t token) const {
  std::int64_t positions = 0;
  for (const LocalRun& run : runs_) positions += end_before(run, token) - run.range_end;
  return positions;
}

// Takes as many tokens as fit; at least one always fits.
bool ResultRows::next_range(std::span<std::int32_t> row_of_position) {
  first_token_ = end_token_;
  if (first_token_ == dispatched_->tokens) return false;
  const auto ends = std::views::iota(first_token_ + 1, dispatched_->tokens + 1);
  const auto fits = [&](std::int64_t end) { return positions_before(end) <= rows_per_range_; };
  end_token_ =
      fits(dispatched_->tokens) ? dispatched_->tokens : *std::ranges::partition_point(ends, fits) - 1;
  EVENKEEL_CHECK(end_token_ > first_token_);
  std::int64_t row = rows() - rows_per_range_;
  for (LocalRun& run : runs_) {
    const std::int64_t end = end_before(run, end_token_);
    run.range_begin = run.range_end;
    run.range_end = end;
    run.range_row = static_cast<std::int32_t>(row);
    for (std::int64_t i = run.range_begin; i < run.range_end; ++i)
      row_of_position[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(row++);
  }
  return true;
}

std::int64_t ResultRows::row(std::int64_t slot) const {
  const auto after = std::ranges::upper_bound(runs_, slot, {}, &LocalRun::slot);
  if (after != runs_.begin()) {
    const LocalRun& run = *(after - 1);
    const std::int64_t position = run.begin + slot - run.slot;
    if (position < run.end) return run.range_row + position - run.range_begin;
  }
  return held_row(slot);
}

std::int64_t ResultRows::held_row(std::int64_t slot) const {
  const auto after = std::ranges::lower_bound(runs_, slot, {}, &LocalRun::slot);
  return slot - before_[static_cast<std::size_t>(after - runs_.begin())];
}

}  // namespace evenkeel
