// How far HiGHS gets alone, with one program for the whole problem and none of our methods, on instances with
// known optima (the table in docs/placement.md). It takes minutes, so it runs only if EVENKEEL_EXACT_SECONDS
// gives the seconds that each program may take.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "evenkeel/placement/clusters/clusters.h"
#include "evenkeel/placement/internal/program/methods.h"
#include "evenkeel/placement/ranks/ranks.h"
#include "tests/placement/moetuner_instances.h"

namespace evenkeel {
namespace {

const SourceCounts no_sources;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Answer>
void print_row(const MoetunerInstance& instance, const std::string& what, const Answer& found, double optimum,
               double seconds) {
  EXPECT_LE(found.bound, optimum * (1 + 1e-9)) << instance.name << ", " << what;
  EXPECT_GE(found.objective, optimum * (1 - 1e-9)) << instance.name << ", " << what;
  fmt::print("{:<10} {:<34} optimum {:>10.2f} found {:>10.2f} bound {:>10.2f} {} {:8.2f} s\n", instance.name,
             what, optimum, found.objective, found.bound, found.proven_optimal ? "proven  " : "unproven",
             seconds);
  std::fflush(stdout);
}

void run_clusters(const MoetunerInstance& instance, double seconds, const internal::Methods& methods,
                  const std::string& how) {
  const Topology topology = instance.topology("uniform");
  const PlacementProblem problem{.profile = instance.profile, .topology = topology, .sources = no_sources};
  const double begin = now();
  const Clustering found = internal::cluster_exact(problem, {}, {.time_limit_s = seconds}, methods);
  print_row(instance, "program 1, equal, " + how, found, instance.equal_optimum, now() - begin);
}

void run_ranks(const MoetunerInstance& instance, double seconds, const internal::Methods& methods,
               const std::string& how) {
  for (const char* links : {"uniform", "two_level"})
    for (PairObjective pairs : {PairObjective::worst_pair, PairObjective::total}) {
      if (!instance.ranks.contains(links)) continue;
      const Topology topology = instance.topology(links);
      const PlacementProblem problem{
          .profile = instance.profile, .topology = topology, .pairs = pairs, .sources = no_sources};
      const double begin = now();
      const RankAssignment found =
          internal::assign_ranks_exact(problem, instance.clusters, {}, {.time_limit_s = seconds}, methods);
      print_row(instance,
                fmt::format("program 2, {}, {}, {}", links,
                            pairs == PairObjective::worst_pair ? "worst" : "total", how),
                found, instance.rank_optimum(links, pairs), now() - begin);
    }
}

TEST(AGeneralSolverAlone, NeverContradictsWhatIsKnown) {
  const char* seconds = std::getenv("EVENKEEL_EXACT_SECONDS");
  if (!has_exact_solver()) GTEST_SKIP() << "built without HiGHS";
  if (!seconds) GTEST_SKIP() << "EVENKEEL_EXACT_SECONDS is not set";
  const double limit = std::atof(seconds);
  for (const MoetunerInstance& instance : moetuner_instances()) {
    run_clusters(instance, limit, {}, "ours");
    run_clusters(instance, limit, {.subsets = false}, "HiGHS");
    run_ranks(instance, limit, {}, "ours");
    run_ranks(instance, limit, {.permutations = false, .alone = false}, "HiGHS");
  }
}

}  // namespace
}  // namespace evenkeel
