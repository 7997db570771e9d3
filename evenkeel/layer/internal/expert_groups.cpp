#include "evenkeel/layer/internal/expert_groups.h"

#include <algorithm>

namespace evenkeel::internal {

namespace {

// Of a group's positions, those in [begin, end).
std::int64_t first_in(const Dispatched::Group& group, std::int64_t begin) {
  return std::max<std::int64_t>(group.begin, begin);
}
std::int64_t end_in(const Dispatched::Group& group, std::int64_t end) {
  return std::min<std::int64_t>(group.end, end);
}

}  // namespace

ExpertGroups::ExpertGroups(const NativeExperts& natives, const BorrowedExperts& borrowed, int num_experts)
    : natives_(natives), borrowed_(borrowed) {
  // A group falls into two where its own run is left out, and one of them in two where something is not
  // saved.
  constexpr std::size_t kMorePieces = 1;
  groups_.reserve(2 * static_cast<std::size_t>(num_experts) + kMorePieces);
  experts_.reserve(groups_.capacity());
}

void ExpertGroups::clear() {
  groups_.clear();
  experts_.clear();
}

void ExpertGroups::collect_waiting(const Dispatched& dispatched, const ResultRows& rows,
                                   const SavedActivations& saved) {
  clear();
  for (std::size_t g = 0; g < dispatched.groups().size(); ++g) {
    const Dispatched::Group& group = dispatched.groups()[g];
    const auto run = std::ranges::find(rows.runs(), static_cast<std::int32_t>(g), &OwnRun::group);
    const bool whole = run == rows.runs().end();
    add_forward(group.expert, group.begin, whole ? group.end : run->begin, saved);
    if (!whole) add_forward(group.expert, run->end, group.end, saved);
  }
}

void ExpertGroups::collect_range(const Dispatched& dispatched, const ResultRows& rows,
                                 const SavedActivations& saved) {
  clear();
  for (const OwnRun& run : rows.runs())
    add_forward(dispatched.groups()[static_cast<std::size_t>(run.group)].expert, run.range_begin,
                run.range_end, saved);
}

void ExpertGroups::collect(const Dispatched& dispatched, const SavedActivations& saved, std::int64_t begin,
                           std::int64_t end) {
  clear();
  for (const Dispatched::Group& group : dispatched.groups())
    add_forward(group.expert, first_in(group, begin), end_in(group, end), saved);
}

void ExpertGroups::collect_saved(const Dispatched& dispatched, const SavedActivations& saved,
                                 std::int64_t begin, std::int64_t end) {
  clear();
  for (const Dispatched::Group& group : dispatched.groups()) {
    const std::int64_t first = first_in(group, std::max(saved.foreign_begin(), begin));
    add(group.expert, first, end_in(group, end), Pass::backward, saved.at(first));
  }
}

void ExpertGroups::collect_again(const Dispatched& dispatched, const SavedActivations& saved,
                                 std::int64_t begin, std::int64_t end) {
  clear();
  for (const Dispatched::Group& group : dispatched.groups())
    add(group.expert, first_in(group, begin), end_in(group, std::min(saved.foreign_begin(), end)),
        Pass::backward, nullptr);
}

void ExpertGroups::keep_without_gate_up() {
  std::size_t kept = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].gradients.gate_up != nullptr) continue;
    groups_[kept] = groups_[g];
    experts_[kept++] = experts_[g];
  }
  groups_.resize(kept);
  experts_.resize(kept);
}

void ExpertGroups::add_forward(ExpertId expert, std::int64_t begin, std::int64_t end,
                               const SavedActivations& saved) {
  if (begin >= end) return;
  const std::int64_t saved_begin = std::clamp(saved.foreign_begin(), begin, end);
  add(expert, begin, saved_begin, Pass::forward, nullptr);
  add(expert, saved_begin, end, Pass::forward, saved.at(saved_begin));
}

void ExpertGroups::add(ExpertId expert, std::int64_t begin, std::int64_t end, Pass pass, std::byte* saved) {
  if (begin >= end) return;
  ExpertGroup& group = groups_.emplace_back();
  group.prepared = prepared(expert, pass);
  if (pass == Pass::backward && saved == nullptr) group.prepared_again = prepared(expert, Pass::recompute);
  group.begin = begin;
  group.end = end;
  group.saved = saved;
  experts_.push_back(expert);
}

const std::byte* ExpertGroups::prepared(ExpertId expert, Pass pass) const {
  return natives_.is_native(expert) ? natives_.prepared(expert, pass) : borrowed_.prepared(expert, pass);
}

std::int64_t ExpertGroups::positions() const {
  std::int64_t positions = 0;
  for (const ExpertGroup& group : groups_) positions += group.end - group.begin;
  return positions;
}

}  // namespace evenkeel::internal
