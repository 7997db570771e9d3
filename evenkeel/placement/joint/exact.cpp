// Balance and traffic in one linear program, in predicted milliseconds: experts directly on ranks.
//
// Method      rank_program.h with experts as items: E P binaries a layer, E P^2 flows an exchange. The cost
//             of a layer is its slowest rank and its slowest pair of ranks. Under dispatch_combine with equal
//             sizes, layers are independent and solved one by one.
// Limits      only for small E P. Above `most_columns` the program is not tried, and the start is returned.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/problem_check.h"
#include "evenkeel/placement/internal/program/exchange.h"
#include "evenkeel/placement/internal/program/program.h"
#include "evenkeel/placement/internal/program/rank_program.h"
#include "evenkeel/placement/internal/shared_time.h"
#include "evenkeel/placement/joint/internal/joint_bound.h"
#include "evenkeel/placement/joint/joint.h"

namespace evenkeel {

namespace internal {
namespace {

// Floors are multiplied by this, so that rounding does not lift them above the true values.
constexpr double kSafely = 1 - 1e-9;

class JointSolve {
 public:
  JointSolve(const PlacementProblem& problem, const JointSolution& start, const SolveLimits& limits)
      : problem_(problem),
        rule_(size_rule(problem)),
        exchanges_(expert_exchanges(problem)),
        costs_(PairCosts::of_time(problem.topology, problem.cost)),
        floors_(joint_bound(problem, Deadline(limits, /*least_seconds=*/0.2))),
        deadline_(limits) {
    for (RankId rank : indices<RankId>(rule_.num_ranks))
      cost_per_load_.push_back(computed_ms(problem.cost, problem.topology, rank));
    best_ = begin(start);
    given_bound_ = start.rank_of_expert.empty() ? 0 : start.bound_ms;
    const bool separate = problem.traffic == TrafficModel::dispatch_combine && !rule_.has_totals();
    const int layers_of_part = separate ? 1 : rule_.num_layers;
    for (int layer = 0; layer < rule_.num_layers; layer += layers_of_part)
      parts_.push_back({.first_layer = layer, .num_layers = layers_of_part});
    for (Part& part : parts_) {
      part.objective = objective(part);
      part.bound = floor(part);
    }
  }

  JointSolution run() {
    std::vector<OpenPart> open;
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].objective > parts_[i].bound) open.push_back({i});
    if (!open.empty() && !is_enough()) require_small();
    if (program_tried_)
      open = solve_in_rounds(
          std::move(open), deadline_.seconds_left(), deadline_,
          [&](std::size_t part, double seconds) { return solve_part(part, seconds); },
          [&] { return is_enough(); });
    if (best_.empty()) refuse(ProgramAnswer::End::interrupted);
    JointSolution answer{.rank_of_expert = best_,
                         .objective_ms = total(&Part::objective),
                         .bound_ms = std::max(total(&Part::bound), given_bound_),
                         .ended_by_time = program_tried_ && !open.empty() && !deadline_.stop_requested(),
                         .program_tried = program_tried_};
    conclude(answer, answer.objective_ms, answer.bound_ms, false);
    return answer;
  }

 private:
  // Layers that are solved together.
  struct Part {
    int first_layer = 0;
    int num_layers = 0;
    double objective = 0;
    double bound = 0;
  };

  std::vector<Ranks> begin(const JointSolution& start) const {
    if (!start.rank_of_expert.empty()) require_clusters(problem_, start.rank_of_expert);
    if (!start.rank_of_expert.empty() &&
        sizes_fit_ranks(sizes_of(start.rank_of_expert, rule_.num_ranks), rule_))
      return start.rank_of_expert;
    std::vector<Ranks> own = contiguous_clusters(rule_);
    return sizes_fit_ranks(sizes_of(own, rule_.num_ranks), rule_) ? own : std::vector<Ranks>{};
  }

  std::vector<double> loads(int layer) const {
    const auto loads = problem_.profile.loads(LayerId(layer));
    return {loads.begin(), loads.end()};
  }

  template <class F>
  void for_exchanges(const Part& part, F f) const {
    for (const Exchange& exchange : exchanges_)
      if (exchange.to_layer >= part.first_layer && exchange.to_layer < part.first_layer + part.num_layers)
        f(exchange);
  }

  double objective(const Part& part) const {
    if (best_.empty()) return infinity;
    double sum = 0;
    for (int layer = part.first_layer; layer < part.first_layer + part.num_layers; ++layer) {
      std::vector<double> busy(cost_per_load_.size(), 0.0);
      const std::span<const std::int64_t> load = problem_.profile.loads(LayerId(layer));
      for (std::size_t e = 0; e < load.size(); ++e) {
        const auto rank = static_cast<std::size_t>(best_[static_cast<std::size_t>(layer)][e]);
        busy[rank] += static_cast<double>(load[e]) * cost_per_load_[rank];
      }
      sum += *std::max_element(busy.begin(), busy.end());
    }
    for_exchanges(part, [&](const Exchange& exchange) {
      const auto layer = static_cast<std::size_t>(exchange.to_layer);
      sum += cost_of(exchange, costs_, exchange.from_layer_before ? best_[layer - 1] : best_[layer],
                     best_[layer]);
    });
    return sum;
  }

  double compute_floor(int layer) const { return floors_.compute_ms[static_cast<std::size_t>(layer)]; }
  double exchange_floor(const Exchange& exchange) const {
    const int index = exchange.to_layer - (exchange.from_layer_before ? 1 : 0);
    return floors_.exchange_ms[static_cast<std::size_t>(index)];
  }

  double floor(const Part& part) const {
    double sum = 0;
    for (int layer = part.first_layer; layer < part.first_layer + part.num_layers; ++layer)
      sum += compute_floor(layer);
    for_exchanges(part, [&](const Exchange& exchange) { sum += exchange_floor(exchange); });
    return sum;
  }

  std::int64_t columns(const Part& part) const {
    const std::int64_t experts = rule_.num_experts;
    const std::int64_t ranks = rule_.num_ranks;
    std::int64_t count = part.num_layers * experts * ranks;
    for_exchanges(part, [&](const Exchange& exchange) {
      if (exchange.from_layer_before) count += experts * ranks * ranks;
    });
    return count;
  }

  RankProgram program_of(const Part& part) const {
    double largest_compute = 0;
    for (int layer = part.first_layer; layer < part.first_layer + part.num_layers; ++layer)
      largest_compute = std::max(largest_compute, compute_floor(layer));
    RankProgram program(part.num_layers, rule_.num_experts, rule_.num_ranks,
                        Units::of(exchanges_, costs_, largest_compute));
    for (int i = 0; i < part.num_layers; ++i) {
      for (int rank = 0; rank < rule_.num_ranks; ++rank)
        program.limit_items(i, rank, rule_.in_layer.least[static_cast<std::size_t>(rank)],
                            rule_.in_layer.most[static_cast<std::size_t>(rank)]);
      program.add_compute(i, loads(part.first_layer + i), cost_per_load_,
                          compute_floor(part.first_layer + i) * kSafely);
    }
    if (rule_.has_totals())
      program.limit_totals(
          std::vector<std::vector<int>>(static_cast<std::size_t>(rule_.num_layers),
                                        std::vector<int>(static_cast<std::size_t>(rule_.num_experts), 1)),
          rule_);
    for_exchanges(part, [&](Exchange exchange) {
      const double floor = exchange_floor(exchange) * kSafely;
      exchange.to_layer -= part.first_layer;
      program.add_exchange(exchange, costs_, floor);
    });
    return program;
  }

  double total(double Part::*figure) const {
    double sum = 0;
    for (const Part& part : parts_) sum += part.*figure;
    return sum;
  }
  bool is_enough() const {
    return !best_.empty() &&
           deadline_.close_enough(total(&Part::objective), std::max(total(&Part::bound), given_bound_));
  }

  // The programs of all parts have the same size.
  void require_small() {
    program_tried_ = columns(parts_.front()) <= most_columns;
    if (!program_tried_ && best_.empty())
      throw Unsupported(fmt::format(
          "objective joint with solver exact makes a program of {} variables, above the limit of {}; "
          "use solver fast, or start from its answer",
          columns(parts_.front()), most_columns));
  }

  [[noreturn]] static void refuse(ProgramAnswer::End end) {
    throw Infeasible(
        end == ProgramAnswer::End::infeasible
            ? "no cluster sizes within the ranks' capacities give every rank the same number of experts over "
              "all layers (Eq. 13); raise the capacities, or use sizes equal"
            : "no placement that gives every rank the same number of experts over all layers (Eq. 13) was "
              "found in time; raise the time limit");
  }

  // Returns true if the solver ended by itself, false if time cut it off.
  bool solve_part(std::size_t at, double seconds) {
    Part& part = parts_[at];
    tell_rest(at);
    const RankProgram program = program_of(part);
    const ProgramAnswer answer =
        program.solve_from(layers_of(part), seconds, deadline_, deadline_.spare_gap(part.bound));
    if (best_.empty() && answer.values.empty()) refuse(answer.end);
    if (!answer.values.empty()) keep_if_better(part, program.ranks_of(answer));
    part.bound = answer.proves_optimum(deadline_) ? part.objective : std::max(part.bound, answer.bound);
    return answer.end != ProgramAnswer::End::interrupted;
  }

  std::vector<Ranks> layers_of(const Part& part) const {
    if (best_.empty()) return {};
    const auto first = best_.begin() + part.first_layer;
    return {first, first + part.num_layers};
  }

  void keep_if_better(Part& part, const std::vector<Ranks>& found) {
    const std::vector<Ranks> given = best_;
    best_.resize(static_cast<std::size_t>(rule_.num_layers));
    std::copy(found.begin(), found.end(), best_.begin() + part.first_layer);
    const double value = objective(part);
    if (value < part.objective)
      part.objective = value;
    else
      best_ = given;
  }

  void tell_rest(std::size_t solving) {
    double others = 0;
    double bounds = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (i != solving) others += parts_[i].objective, bounds += parts_[i].bound;
    deadline_.set_rest(others, bounds);
  }

  const PlacementProblem& problem_;
  SizeRule rule_;
  std::vector<Exchange> exchanges_;  // between experts
  PairCosts costs_;
  JointBound floors_;
  std::vector<double> cost_per_load_;  // [P] ms
  Deadline deadline_;
  std::vector<Ranks> best_;  // empty: no feasible answer is known
  std::vector<Part> parts_;
  double given_bound_ = 0;
  bool program_tried_ = true;
};

}  // namespace
}  // namespace internal

JointSolution place_jointly_exact(const PlacementProblem& problem, const JointSolution& start,
                                  const SolveLimits& limits) {
  internal::require_solver();
  return internal::JointSolve(problem, start, limits).run();
}

}  // namespace evenkeel
