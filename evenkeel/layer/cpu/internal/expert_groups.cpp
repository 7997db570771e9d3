#include "evenkeel/layer/cpu/internal/expert_groups.h"

#include <algorithm>

namespace evenkeel::internal {

ExpertGroups::ExpertGroups(const NativeExperts& natives, const BorrowedExperts& borrowed, int num_experts)
    : natives_(natives), borrowed_(borrowed) {
  groups_.reserve(2 * static_cast<std::size_t>(num_experts));  // one is two where its own run is left out
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
    add(group.expert, group.begin, whole ? group.end : run->begin, Pass::forward, saved.at(group.begin));
    if (!whole) add(group.expert, run->end, group.end, Pass::forward, saved.at(run->end));
  }
}

void ExpertGroups::collect_range(const Dispatched& dispatched, const ResultRows& rows,
                                 const SavedActivations& saved) {
  clear();
  for (const OwnRun& run : rows.runs())
    add(dispatched.groups()[static_cast<std::size_t>(run.group)].expert, run.range_begin, run.range_end,
        Pass::forward, saved.at(run.range_begin));
}

void ExpertGroups::collect_backward(const Dispatched& dispatched, const SavedActivations& saved) {
  clear();
  for (const Dispatched::Group& group : dispatched.groups())
    add(group.expert, group.begin, group.end, Pass::backward, saved.at(group.begin));
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

}  // namespace evenkeel::internal
