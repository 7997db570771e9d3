#include "evenkeel/layer/internal/expert_groups.h"

#include <algorithm>

namespace evenkeel::internal {

ExpertGroups::ExpertGroups(const NativeExperts& natives, const BorrowedExperts& borrowed,
                           const BorrowedExperts& again, int num_experts)
    : natives_(natives), borrowed_(borrowed), again_(again) {
  // A group falls into two where its own run is left out, and one of them in three where something is not
  // saved.
  constexpr std::size_t kMorePieces = 2;
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
  auto run = rows.runs().begin();
  for (std::size_t g = 0; g < dispatched.groups().size(); ++g) {
    const Dispatched::Group& group = dispatched.groups()[g];
    if (run == rows.runs().end() || run->group != static_cast<std::int32_t>(g)) {
      add_forward(group.expert, group.begin, group.end, saved);
      continue;
    }
    add_forward(group.expert, group.begin, run->begin, saved);
    add_forward(group.expert, run->end, group.end, saved);
    ++run;
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
    add_forward(group.expert, std::max(group.begin, begin), std::min(group.end, end), saved);
}

void ExpertGroups::collect_saved(const Dispatched& dispatched, const SavedActivations& saved,
                                 std::int64_t begin, std::int64_t end) {
  clear();
  for (const Dispatched::Group& group : dispatched.groups()) {
    const std::int64_t first = std::max(group.begin, begin);
    const std::int64_t last = std::min(group.end, end);
    if (first >= last) continue;
    const std::int64_t again_begin = std::clamp(saved.again_begin(), first, last);
    const std::int64_t again_end = std::clamp(saved.again_end(), first, last);
    add(group.expert, first, again_begin, Pass::backward, saved.at(first));
    add(group.expert, again_end, last, Pass::backward, saved.at(again_end));
  }
}

void ExpertGroups::collect_again(const Dispatched& dispatched, const SavedActivations& saved,
                                 std::int64_t begin, std::int64_t end) {
  clear();
  for (const Dispatched::Group& group : dispatched.groups())
    add(group.expert, std::max({saved.again_begin(), group.begin, begin}),
        std::min({saved.again_end(), group.end, end}), Pass::backward, nullptr);
}

void ExpertGroups::add_forward(ExpertId expert, std::int64_t begin, std::int64_t end,
                               const SavedActivations& saved) {
  if (begin >= end) return;
  const std::int64_t again_begin = std::clamp(saved.again_begin(), begin, end);
  const std::int64_t again_end = std::clamp(saved.again_end(), begin, end);
  add(expert, begin, again_begin, Pass::forward, saved.at(begin));
  add(expert, again_begin, again_end, Pass::forward, nullptr);
  add(expert, again_end, end, Pass::forward, saved.at(again_end));
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
  if (natives_.is_native(expert)) return natives_.prepared(expert, pass);
  const std::byte* at_hand = borrowed_.prepared(expert, pass);
  return at_hand != nullptr ? at_hand : again_.prepared(expert, pass);
}

std::int64_t ExpertGroups::positions() const {
  std::int64_t positions = 0;
  for (const ExpertGroup& group : groups_) positions += group.end - group.begin;
  return positions;
}

}  // namespace evenkeel::internal
