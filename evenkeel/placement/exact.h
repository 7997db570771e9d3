// Placement by integer programming: MoETuner's two programs and their joint form, solved to a proven gap.
//
// Problem     as in problem.h: clusters of nearly equal load (Eq. 1-7), a rank for every cluster
//             (Eq. 8-15), or both at once in predicted milliseconds.
// Method      HiGHS, on linear programs written down term by term (exact/internal/*_program.h). Where
//             a method of our own ends with a proof sooner, it is used: subsets for up to some 18
//             experts, permutations for up to 6 ranks, each exchange alone where links are alike.
// Cost        exponential at worst; one thread. What does not end in time comes back as it is.
// Guarantee   never worse than `start`; the objective is recomputed from the answer itself; nobody
//             goes below the bound (within 1e-6 of it, the solver's tolerance); proven_optimal where
//             the two meet.
// Source      MoETuner (arXiv 2502.06643), Section 4.2; readings: docs/placement.md.
#pragma once

#include "evenkeel/placement/problem.h"

namespace evenkeel {

// Whether this build has the integer-program solver; without it the functions below throw Unsupported.
bool has_exact_solver();

// `start` is an answer to begin from, such as the fast solver's, or empty. One that breaks the sizes or
// capacities asked for is not used; one of another shape than the profile is an InvalidArgument. Its bound is
// taken as proven, and what comes back has no lower one. All throw Infeasible where capacities and Eq. 13
// leave no answer, or none was found in time.
//
// A program of more than 300,000 variables is not tried: the start comes back, and `program_tried` says so;
// without a start, Unsupported. E P^2 variables a layer for the joint one, P^3 for ranks of unlike links, E P
// for free sizes that are chosen together.

// With free sizes the layers are solved one by one, and together only if the sizes that come out cannot give
// every rank the same total (Eq. 13); `sizes_chosen_together` says so. Cluster c of every layer then goes to
// rank c.
Clustering cluster_exact(const PlacementProblem& problem, const Clustering& start, const SolveLimits& limits);
RankAssignment assign_ranks_exact(const PlacementProblem& problem, const Clustering& clustering,
                                  const RankAssignment& start, const SolveLimits& limits);
// For few experts and ranks.
JointSolution place_jointly_exact(const PlacementProblem& problem, const JointSolution& start,
                                  const SolveLimits& limits);

}  // namespace evenkeel
