// What reports of measured experiments share: how they write figures, layers and budgets.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/page.h"
#include "evenkeel/study/accuracy.h"
#include "evenkeel/study/study_setup.h"

namespace evenkeel::internal {

// Explains the critical path; printed below every table that shows it.
inline constexpr std::string_view kCriticalPath =
    "critical path: the largest CPU time of any rank in each phase, summed over phases; no overlap";

// "8 ranks, 32 experts, top-4, 256 x 160 swiglu f32, forward"
std::string layer_line(const MoeShape& shape, int ranks, bool backward);
std::string layer_line(const StudySetup& setup);
// "budget 12.0 MiB a rank (least budget 3.1 MiB), chunks exact, recompute auto"
std::string budget_line(const Budget& budget, std::int64_t least_budget);
// The costs that decide whether moving work is predicted to save time, in two lines.
std::string costs_lines(const SpillCosts& costs);

std::string planner_of(const CandidateFigures& of);
// "12 %"
std::string percent(double share);
std::string milliseconds(double ms);
// "yes" or "no"; "-" for an unknown answer.
std::string yes_or_no(const std::optional<bool>& answer);

// The candidate's figures, as JSON with these keys.
Json json_of(const CandidateFigures& of, std::span<const std::string_view> keys, double ideal = 1);
inline Json json_of(const CandidateFigures& of, std::initializer_list<std::string_view> keys,
                    double ideal = 1) {
  return json_of(of, std::span(keys.begin(), keys.size()), ideal);
}
// JSON keys for the bytes that nodes send each other.
inline constexpr std::array<std::string_view, 4> kBetweenNodes = {
    "bytes_between_nodes", "dispatch_bytes_between_nodes", "transfer_bytes_between_nodes",
    "most_bytes_of_a_node"};
// "threads" or "mpi".
std::string_view backend_of(const RankPlaces& where);
// The number of nodes; 0 if nodes are not known.
std::size_t count_nodes(const RankPlaces& where);
// Prints where ranks run, if they are processes or their nodes are known.
void put_places(Page& page, const RankPlaces& where);
// JSON with control_ratio and control_spread.
Json json_of_control(const RoundRatio& control);
// JSON with budget, least_budget, chunks and recompute.
Json json_of(const Budget& budget, std::int64_t least_budget);
// JSON with ranks, tokens_per_rank, layer and pairs.
Json json_of(const StudySetup& setup);

// Planners compared on one or more batches. `in_chunks` also shows how steps were cut into chunks.
struct Comparison {
  std::string name;
  const CheckedFigures& checked;
};
void put_comparisons(Page& page, const std::vector<Comparison>& comparisons, bool in_chunks,
                     bool on_nodes = false);
// Prints the load of each rank under ep and under the last planner.
void put_loads(Page& page, const Comparison& comparison);

}  // namespace evenkeel::internal
