// _native.StepLayout: from the counts of all ranks to what this rank sends, receives, borrows and lends, in
// one call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/budget/phase_bytes.h"
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/step_routes.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

// Routes whose memory goes back to where it came from: fresh pages for every step would take longer than
// filling them.
class RoutesPool {
 public:
  StepRoutes take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    StepRoutes routes = std::move(free_.back());
    free_.pop_back();
    return routes;
  }
  void give_back(StepRoutes routes) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < most_free) free_.push_back(std::move(routes));
  }

 private:
  static constexpr std::size_t most_free = 4;
  std::mutex mutex_;
  std::vector<StepRoutes> free_;
};

struct PooledRoutes {
  explicit PooledRoutes(std::shared_ptr<RoutesPool> from) : pool(std::move(from)), routes(pool->take()) {}
  PooledRoutes(PooledRoutes&&) = default;
  ~PooledRoutes() {
    if (pool) pool->give_back(std::move(routes));
  }

  std::shared_ptr<RoutesPool> pool;
  StepRoutes routes;
};

// counts [P][B][E] and tokens [P][B] of a step whose tokens are counted in blocks.
struct BlockCounts {
  std::span<const std::int64_t> counts, tokens;
  int ranks = 0, blocks = 0, experts = 0;

  // Adds blocks [first, end) to `sum`, whose counts are zeros.
  void add_to(Counts& sum, int first, int end) const {
    const auto width = static_cast<std::size_t>(experts);
    const auto rows = sum.rows();
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
      for (int block = first; block < end; ++block) {
        const std::size_t from =
            (rank * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(block)) * width;
        for (std::size_t e = 0; e < width; ++e) rows[rank * width + e] += counts[from + e];
      }
  }
  // Tokens of blocks [first, end), by rank.
  std::vector<std::int64_t> tokens_of(int first, int end) const {
    std::vector<std::int64_t> sums;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto row = tokens.begin() + std::ptrdiff_t{rank} * blocks;
      sums.push_back(std::accumulate(row + first, row + end, std::int64_t{0}));
    }
    return sums;
  }
};

// Bytes that a chunk takes on the rank that needs the most; `tokens` by rank.
std::int64_t most_bytes(const Counts& counts, const LayerPlacement& homes, const StepPlan& plan,
                        std::span<const std::int64_t> tokens, std::span<const PhaseBytes> phases) {
  ForeignLoads foreign(counts.num_ranks());
  foreign.read(plan, homes);
  Deal deal;
  std::int64_t most = 0;
  for (RankId rank : indices<RankId>(counts.num_ranks())) {
    deal.make(counts, plan, rank);
    ChunkLoad load{.tokens = tokens[rank.offset()]};
    for (std::int64_t count : deal.sent()) load.assignments += count;
    for (std::int64_t count : deal.received()) load.positions_here += count;
    load.assignments_kept = deal.sent()[rank.offset()];
    for (const PhaseBytes& phase : phases)
      most = std::max(most, phase.of(load, foreign.loads()[rank.offset()]));
  }
  return most;
}

// The end of the longest run from `first` for which fits(end) holds, as far as halving finds it; `first`
// where not even one block fits.
template <class Fits>
int longest(int first, int blocks, const Fits& fits) {
  if (fits(blocks)) return blocks;
  int good = first, bad = blocks;
  while (bad - good > 1) {
    const int middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

// A layer on one rank: its homes and planner, which keep their memory from step to step.
class StepLayout {
 public:
  StepLayout(LayerPlacement placement, int rank, const PlannerOptions& options)
      : placement_(std::move(placement)),
        rank_(RankId(rank)),
        options_(options),
        planner_(make_planner(options)),
        stay_(make_planner({.kind = PlannerOptions::Kind::ep})) {
    if (rank < 0 || rank >= placement_.num_ranks())
      throw InvalidArgument("rank", std::to_string(rank) + " is none of the ranks",
                            "0.." + std::to_string(placement_.num_ranks() - 1));
  }

  void set_costs(const SpillCosts& costs) {
    options_.costs = costs;
    planner_ = make_planner(options_);
  }

  // A chunk takes no more than `budget` on any rank: where the planner's plan does, all stays at home.
  void set_budget(std::vector<PhaseBytes> phases, std::int64_t budget) {
    phases_ = std::move(phases);
    budget_ = budget;
  }

  // The plan of the counts [P, E], of `tokens` by rank (needed under a budget alone), and this rank's routes;
  // nothing if no work moves and that is not wanted.
  std::optional<PooledRoutes> step(const InArray<std::int64_t, 2>& experts,
                                   const InArray<std::int64_t, 2>& counts,
                                   const std::vector<std::int64_t>& tokens, bool also_if_nothing_moves) {
    const nb::gil_scoped_release release;
    require_shape(counts.shape(0), counts.shape(1));
    counts_.resize(placement_.num_ranks(), placement_.num_experts());
    std::ranges::copy(values_of(counts), counts_.rows().begin());
    plan(tokens, budget_);
    if (!plan_.spilled() && !also_if_nothing_moves) return std::nullopt;
    PooledRoutes made(pool_);
    router_.route(values_of(experts), static_cast<int>(experts.shape(1)), counts_, plan_, placement_, rank_,
                  made.routes);
    return made;
  }

  // Blocks [first, result) fit as one chunk; `first` if not even one does. counts [P, B, E], tokens [P, B].
  int longest_chunk(const InArray<std::int64_t, 3>& counts, const InArray<std::int64_t, 2>& tokens,
                    int first) {
    const nb::gil_scoped_release release;
    const BlockCounts blocks = blocks_of(counts, tokens);
    return longest(first, blocks.blocks,
                   [&](int end) { return bytes_of(blocks, first, end, budget_) <= budget_; });
  }

  // Bytes of the largest of so many chunks, as equal as whole blocks make them. `balanced`: as the planner
  // plans them, whatever that takes; else a chunk beyond the budget has nothing moved.
  std::int64_t equal_chunk_bytes(const InArray<std::int64_t, 3>& counts,
                                 const InArray<std::int64_t, 2>& tokens, int chunks, bool balanced) {
    const nb::gil_scoped_release release;
    const BlockCounts blocks = blocks_of(counts, tokens);
    const std::int64_t allowed = balanced ? std::numeric_limits<std::int64_t>::max() : budget_;
    std::int64_t most = 0;
    equal_chunks_move_ = false;
    for (int i = 0; i < chunks; ++i) {
      most = std::max(
          most, bytes_of(blocks, i * blocks.blocks / chunks, (i + 1) * blocks.blocks / chunks, allowed));
      equal_chunks_move_ |= plan_.spilled();
    }
    return most;
  }

  std::vector<std::int64_t> rank_loads() const {
    return {plan_.rank_loads().begin(), plan_.rank_loads().end()};
  }
  std::size_t transfers() const { return plan_.transfers().size(); }
  bool equal_chunks_move() const { return equal_chunks_move_; }
  bool fell_back_to_ep() const { return fell_back_to_ep_; }
  int natives() const { return static_cast<int>(placement_.natives(rank_).size()); }

 private:
  BlockCounts blocks_of(const InArray<std::int64_t, 3>& counts,
                        const InArray<std::int64_t, 2>& tokens) const {
    require_shape(counts.shape(0), counts.shape(2));
    return {values_of(counts), values_of(tokens), placement_.num_ranks(), static_cast<int>(counts.shape(1)),
            placement_.num_experts()};
  }
  std::int64_t bytes_of(const BlockCounts& blocks, int first, int end, std::int64_t allowed) {
    counts_.resize(placement_.num_ranks(), placement_.num_experts());
    blocks.add_to(counts_, first, end);
    return plan(blocks.tokens_of(first, end), allowed);
  }
  void require_shape(std::size_t ranks, std::size_t experts) const {
    if (static_cast<int>(ranks) == placement_.num_ranks() &&
        static_cast<int>(experts) == placement_.num_experts())
      return;
    throw InvalidArgument("counts",
                          std::to_string(experts) + " experts on " + std::to_string(ranks) + " ranks",
                          std::to_string(placement_.num_experts()) + " experts on " +
                              std::to_string(placement_.num_ranks()) + " ranks");
  }
  // Fills plan_ from counts_, with nothing moved where moving takes more bytes than `allowed`; what it takes
  // on the rank with the most, 0 without a budget.
  std::int64_t plan(const std::vector<std::int64_t>& tokens, std::int64_t allowed) {
    counts_.sum_loads();
    planner_->plan(counts_, placement_, plan_);
    fell_back_to_ep_ = false;
    if (phases_.empty()) return 0;
    const std::int64_t taken = most_bytes(counts_, placement_, plan_, tokens, phases_);
    if (taken <= allowed || !plan_.spilled()) return taken;
    fell_back_to_ep_ = true;
    stay_->plan(counts_, placement_, plan_);
    return most_bytes(counts_, placement_, plan_, tokens, phases_);
  }

  LayerPlacement placement_;
  RankId rank_;
  PlannerOptions options_;
  std::unique_ptr<Planner> planner_, stay_;
  std::vector<PhaseBytes> phases_;  // none without a budget
  std::int64_t budget_ = 0;
  bool fell_back_to_ep_ = false;    // in the last plan
  bool equal_chunks_move_ = false;  // work, in any of the last equal chunks
  Counts counts_;
  StepPlan plan_;
  StepRouter router_;
  std::shared_ptr<RoutesPool> pool_ = std::make_shared<RoutesPool>();
};

// A view of one of the arrays, which keeps the routes alive.
template <auto member>
OutArray<std::int64_t> array_of(nb::handle_t<PooledRoutes> self) {
  auto& values = nb::cast<PooledRoutes&>(self).routes.*member;
  return OutArray<std::int64_t>(values.data(), {values.size()}, self);
}

}  // namespace

void bind_routes(nb::module_& module) {
  nb::class_<PooledRoutes>(module, "StepRoutes")
      .def_prop_ro("sent_rows", &array_of<&StepRoutes::sent_rows>)
      .def_prop_ro("sent_row_counts", [](const PooledRoutes& self) { return self.routes.sent_row_counts; })
      .def_prop_ro("sent_positions", &array_of<&StepRoutes::sent_positions>)
      .def_prop_ro("row_of", &array_of<&StepRoutes::row_of>)
      .def_prop_ro("sent_counts", [](const PooledRoutes& self) { return self.routes.sent_counts; })
      .def_prop_ro("received_counts", [](const PooledRoutes& self) { return self.routes.received_counts; })
      .def_prop_ro("own_positions", &array_of<&StepRoutes::own_positions>)
      .def_prop_ro("order", &array_of<&StepRoutes::order>)
      .def_prop_ro("computed_at", &array_of<&StepRoutes::computed_at>)
      .def_prop_ro("slots", &array_of<&StepRoutes::slots>)
      .def_prop_ro("native_positions", [](const PooledRoutes& self) { return self.routes.native_positions; })
      .def_prop_ro("borrowed", [](const PooledRoutes& self) { return self.routes.borrowed; })
      .def_prop_ro("borrowed_counts", [](const PooledRoutes& self) { return self.routes.borrowed_counts; })
      .def_prop_ro("lent", &array_of<&StepRoutes::lent>)
      .def_prop_ro("lent_counts", [](const PooledRoutes& self) { return self.routes.lent_counts; })
      .def_prop_ro("result_of", &array_of<&StepRoutes::result_of>)
      .def_prop_ro("moves_weights", [](const PooledRoutes& self) { return self.routes.moves_weights; })
      .def(
          "find_rows",
          [](PooledRoutes& self, const InArray<std::int64_t, 1>& arrived, int k) {
            self.routes.find_rows(values_of(arrived), k);
          },
          nb::arg("arrived"), nb::arg("k"))
      .def_prop_ro("received_row_counts",
                   [](const PooledRoutes& self) { return self.routes.received_row_counts; })
      .def_prop_ro("pool_rows", &array_of<&StepRoutes::pool_rows>);

  module.def("parse_bytes",
             [](const std::string& text, const std::string& what) { return parse_bytes(text, what); });
  nb::class_<PhaseBytes>(module, "PhaseBytes")
      .def(
          "__init__",
          [](PhaseBytes* self, std::int64_t token, std::int64_t assignment, std::int64_t sent,
             std::int64_t received, std::int64_t position, std::int64_t borrowed, std::int64_t lent,
             std::int64_t fixed) {
            new (self) PhaseBytes{token, assignment, sent, received, position, borrowed, lent, fixed};
          },
          nb::arg("token") = 0, nb::arg("assignment") = 0, nb::arg("sent") = 0, nb::arg("received") = 0,
          nb::arg("position") = 0, nb::arg("borrowed") = 0, nb::arg("lent") = 0, nb::arg("fixed") = 0)
      .def("to_list",
           [](const PhaseBytes& self) {
             return std::vector{self.per_token,    self.per_assignment, self.per_sent, self.per_received,
                                self.per_position, self.per_borrowed,   self.per_lent, self.fixed};
           })
      .def("of_one_token", [](const PhaseBytes& self, std::int64_t k, std::int64_t ranks) {
        return self.per_token + k * (self.per_assignment + self.per_sent) +
               (ranks - 1) * k * self.per_received + ranks * k * self.per_position + self.fixed;
      });

  nb::class_<StepLayout>(module, "StepLayout")
      .def(
          "__init__",
          [](StepLayout* self, const Placement& placement, int layer, int rank, const std::string& planner,
             std::int64_t capacity_factor, std::int64_t min_segment, std::int64_t imbalance_threshold) {
            new (self) StepLayout(placement.layer(layer), rank,
                                  {.kind = parse_planner(planner),
                                   .capacity_factor_thousandths = capacity_factor,
                                   .min_segment = min_segment,
                                   .imbalance_threshold_thousandths = imbalance_threshold});
          },
          nb::arg("placement"), nb::arg("layer"), nb::arg("rank"), nb::arg("planner"),
          nb::arg("capacity_factor_thousandths"), nb::arg("min_segment"),
          nb::arg("imbalance_threshold_thousandths"))
      .def("set_costs",
           [](StepLayout& self, double per_assignment, double per_transfer, double per_step) {
             self.set_costs({per_assignment, per_transfer, per_step});
           })
      .def("set_budget", &StepLayout::set_budget, nb::arg("phases"), nb::arg("budget"))
      .def("step", &StepLayout::step, nb::arg("experts"), nb::arg("counts"), nb::arg("tokens"),
           nb::arg("also_if_nothing_moves"))
      .def("longest_chunk", &StepLayout::longest_chunk, nb::arg("counts"), nb::arg("tokens"),
           nb::arg("first"))
      .def("equal_chunk_bytes", &StepLayout::equal_chunk_bytes, nb::arg("counts"), nb::arg("tokens"),
           nb::arg("chunks"), nb::arg("balanced"))
      .def_prop_ro("equal_chunks_move", &StepLayout::equal_chunks_move)
      .def_prop_ro("fell_back_to_ep", &StepLayout::fell_back_to_ep)
      .def_prop_ro("rank_loads", &StepLayout::rank_loads)
      .def_prop_ro("transfers", &StepLayout::transfers)
      .def_prop_ro("natives", &StepLayout::natives);
}

}  // namespace evenkeel::python
