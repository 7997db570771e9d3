#include "evenkeel/study/candidate.h"

#include <algorithm>
#include <cmath>

namespace evenkeel {

namespace {

constexpr double kWholeShare = 100'000;  // 100 %, in thousandths of a percent

}  // namespace

bool Budget::cuts() const {
  return is_given() || memory.rule.kind != ChunkRule::Kind::exact || memory.recompute == Recompute::whole ||
         memory.recompute == Recompute::chunk;
}

std::string_view name_of(Recompute recompute) {
  constexpr std::string_view names[] = {"none", "whole", "chunk", "auto"};
  return names[static_cast<std::size_t>(recompute)];
}

std::string name_of(const ChunkRule& rule) {
  if (rule.kind == ChunkRule::Kind::equal) return std::to_string(rule.count);
  return rule.kind == ChunkRule::Kind::exact ? "exact" : "mact";
}

std::int64_t RequestedBudget::bytes_of(std::int64_t whole) const {
  if (share_thousandths_of_percent == 0) return bytes;
  const double share = static_cast<double>(share_thousandths_of_percent) / kWholeShare;
  return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(whole)));
}

Candidate plain_ep(const Budget& budget) {
  Candidate candidate{{}, budget};
  candidate.planner.kind = PlannerOptions::Kind::ep;
  return candidate;
}

std::vector<Candidate> candidates_of(const std::vector<PlannerOptions>& planners, const Budget& budget) {
  std::vector<Candidate> candidates;
  for (const PlannerOptions& planner : planners) candidates.push_back({planner, budget});
  return candidates;
}

}  // namespace evenkeel
