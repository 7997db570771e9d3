// _native.StepLayout: from the counts of all ranks to what this rank sends, receives, borrows and lends, in
// one call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "evenkeel/balance/held_slots.h"
#include "evenkeel/balance/planner.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/budget/phase_bytes.h"
#include "evenkeel/budget/shares.h"
#include "evenkeel/plan/slot_tables.h"
#include "evenkeel/plan/step_routes.h"
#include "evenkeel/step/decide.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

struct BothRoutes {
  StepRoutes sent;
  ReceivedRoutes received;
};

// Routes whose memory goes back to where it came from: fresh pages for every step would take longer than
// filling them.
class RoutesPool {
 public:
  BothRoutes take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    BothRoutes routes = std::move(free_.back());
    free_.pop_back();
    return routes;
  }
  void give_back(BothRoutes routes) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < most_free) free_.push_back(std::move(routes));
  }

 private:
  static constexpr std::size_t most_free = 4;
  std::mutex mutex_;
  std::vector<BothRoutes> free_;
};

struct PooledRoutes {
  explicit PooledRoutes(std::shared_ptr<RoutesPool> from) : pool(std::move(from)), routes(pool->take()) {}
  PooledRoutes(PooledRoutes&&) = default;
  ~PooledRoutes() {
    if (pool) pool->give_back(std::move(routes));
  }

  // Of a chunk that borrows with others, slots of borrowed experts count those of all chunks.
  void renumber_slots() {
    if (borrowed_places.empty()) return;
    for (std::int64_t& slot : routes.received.slots)
      if (slot >= natives) slot = natives + borrowed_places[static_cast<std::size_t>(slot - natives)];
  }

  std::shared_ptr<RoutesPool> pool;
  BothRoutes routes;
  std::int64_t natives = 0;
  std::vector<std::int64_t> borrowed_places;  // by the chunk's own number
};

// Where each of these experts is among those of a loan, which come in the same order.
std::vector<std::int64_t> places_in(const Loan& loan, std::span<const std::int64_t> experts) {
  std::vector<std::int64_t> places;
  for (std::size_t at = 0; const std::int64_t expert : experts) {
    while (loan.borrowed[at] != expert) ++at;
    places.push_back(static_cast<std::int64_t>(at));
  }
  return places;
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
    renew_planner();
  }

  // The machine by which costs were predicted: its numbers in the order of machine_numbers().
  void set_machine(const std::vector<double>& numbers) {
    machine_.emplace();
    for (std::size_t i = 0; i < machine_numbers().size(); ++i)
      (*machine_).*machine_numbers()[i].value = numbers.at(i);
  }

  // By which level plans, with that machine.
  void set_links(const Topology& topology, const ExpertWork& expert, double row_bytes, bool training) {
    options_.links = {topology, machine_.value(), expert, row_bytes, training};
    renew_planner();
  }

  // What a decision under a budget follows from: bytes, an expert's products, and the machine.
  void set_budget(std::vector<PhaseBytes> phases, std::int64_t budget, const std::vector<std::int64_t>& bins,
                  double elements, double outputs, double weight_bytes, double gradient_bytes,
                  bool training) {
    budget_ = budget;
    DecisionOptions options;
    options.expert = {{elements, outputs, weight_bytes}, gradient_bytes};
    options.with_backward = training;
    options.plans_chunks = true;
    options.memory.cost = machine_of(options.expert);
    options.memory.keep_plan = !options_.costs && !machine_;  // nobody has said what this machine takes
    if (!bins.empty()) options.memory.rule = {ChunkRule::Kind::mact, 1, bins};
    MadeOf made_of{phases, options.memory, {elements, outputs, weight_bytes, gradient_bytes}, training};
    if (decider_ && made_of == made_of_) return;  // with its memory
    made_of_ = std::move(made_of);
    bytes_ = std::make_unique<MeasuredBytes>(std::move(phases));
    decider_ = std::make_unique<StepDecider>(*bytes_, options, placement_.num_ranks());
  }

  // The plan of the counts [P, E] as a step of its own, `stays`: with nothing moved, and this rank's routes;
  // nothing if no work moves and that is not wanted.
  std::optional<PooledRoutes> step(const InArray<std::int64_t, 2>& experts,
                                   const InArray<std::int64_t, 2>& counts, bool stays,
                                   bool also_if_nothing_moves) {
    const nb::gil_scoped_release release;
    take(counts);
    (stays ? *stay_ : *planner_).plan(counts_, placement_, plan_);
    if (!plan_.spilled() && !also_if_nothing_moves) return std::nullopt;
    return route(experts);
  }

  // Plans the counts [P, E]: the places of this rank's assignments, with borrowed experts in slots.
  SlotTables slots(const InArray<std::int64_t, 2>& counts) {
    const nb::gil_scoped_release release;
    held_plan_ = false;
    take(counts);
    planner_->plan(counts_, placement_, plan_);
    slot_tables_.make(counts_, plan_, placement_, rank_, options_.borrow_slots);
    return slot_tables_;
  }

  // The same with experts that stay in slots from one such step to the next; forget_slots() empties them.
  SlotTables held_slots(const InArray<std::int64_t, 2>& counts) {
    const nb::gil_scoped_release release;
    take(counts);
    if (!held_) held_.emplace(placement_, options_);
    held_plan_ = true;
    held_->plan(counts_, plan_);
    slot_tables_.make(counts_, plan_, placement_, rank_, held_->slots(), held_->sent());
    return slot_tables_;
  }
  void forget_slots() {
    if (held_) held_->clear();
    held_plan_ = false;
  }

  // Of counts [P, B, E] and each rank's tokens: chunks (first block, end, whether nothing moves), in order.
  std::vector<std::tuple<int, int, bool>> decide(const InArray<std::int64_t, 3>& counts,
                                                 const std::vector<std::int64_t>& tokens, std::int64_t k) {
    const nb::gil_scoped_release release;
    ask(counts, tokens, k, [&](const StepInputs& in) { decider_->decide(in, decision_); });
    if (!decision_.plans_chunks) begin_shares();
    std::vector<std::tuple<int, int, bool>> chunks;
    for (const Chunk& chunk : decision_.chunks)
      chunks.emplace_back(static_cast<int>(chunk.begin), static_cast<int>(chunk.end), chunk.stays);
    return chunks;
  }
  std::vector<std::tuple<int, int>> refine() const {
    std::vector<std::tuple<int, int>> runs;
    for (const BlockRun& run : decision_.refine) runs.emplace_back(run.begin, run.end);
    return runs;
  }

  // Decides on chunks that share the plan of these counts [P, E], whatever the budget.
  void plan_shares(const InArray<std::int64_t, 2>& counts) {
    const nb::gil_scoped_release release;
    take(counts);
    planner_->plan(counts_, placement_, decision_.plan);
    begin_shares();
  }

  // This rank's routes of the next chunk under the decided plan; `counts` are the chunk's.
  PooledRoutes share(const InArray<std::int64_t, 2>& experts, const InArray<std::int64_t, 2>& counts) {
    const nb::gil_scoped_release release;
    take(counts);
    shares_.next(counts_, placement_, plan_);
    PooledRoutes made = route(experts);
    made.natives = natives();
    made.borrowed_places = places_in(loan_, made.routes.sent.borrowed);
    return made;
  }

  // Bytes of the largest of so many equal chunks, balanced, and whether work moves in any.
  std::tuple<std::int64_t, bool> equal_chunk_bytes(const InArray<std::int64_t, 3>& counts,
                                                   const std::vector<std::int64_t>& tokens, std::int64_t k,
                                                   int chunks) {
    const nb::gil_scoped_release release;
    PlannedChunks all;
    ask(counts, tokens, k, [&](const StepInputs& in) { all = decider_->equal_chunks(in, chunks); });
    return {all.bytes, all.moves};
  }

  std::vector<std::int64_t> rank_loads() const {
    return {plan_.rank_loads().begin(), plan_.rank_loads().end()};
  }
  std::size_t transfers() const { return held_plan_ ? held_->sent().size() : plan_.transfers().size(); }
  std::int64_t borrow_slots() const { return options_.borrow_slots; }
  std::size_t decided_transfers() const { return decision_.plan.transfers().size(); }
  bool plans_chunks() const { return decision_.plans_chunks; }
  std::string reason() const { return std::string(name_of(decision_.reason)); }
  const Loan& loan() const { return loan_; }
  std::int64_t natives() const { return std::ssize(placement_.natives(rank_)); }

 private:
  void renew_planner() {
    planner_ = make_planner(options_);
    held_.reset();  // plans by the same options
    held_plan_ = false;
  }
  void begin_shares() {
    shares_.begin(decision_.plan);
    loan_.read(decision_.plan.transfers(), placement_, rank_);
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
  void take(const InArray<std::int64_t, 2>& counts) {
    require_shape(counts.shape(0), counts.shape(1));
    counts_.resize(placement_.num_ranks(), placement_.num_experts());
    std::ranges::copy(values_of(counts), counts_.rows().begin());
    counts_.sum_loads();
  }
  PooledRoutes route(const InArray<std::int64_t, 2>& experts) {
    PooledRoutes made(pool_);
    router_.send(values_of(experts), static_cast<int>(experts.shape(1)), counts_, plan_, placement_, rank_,
                 made.routes.sent);
    return made;
  }
  template <class Ask>
  void ask(const InArray<std::int64_t, 3>& counts, const std::vector<std::int64_t>& tokens, std::int64_t k,
           const Ask& use) {
    require_shape(counts.shape(0), counts.shape(2));
    const int ranks = placement_.num_ranks(), experts = placement_.num_experts();
    const auto blocks = static_cast<int>(counts.shape(1));
    numbers_.resize(static_cast<std::size_t>(BlockTable::count(ranks, experts, blocks)));
    const auto values = values_of(counts);
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (std::accumulate(values.begin(), values.end(), std::int64_t{0}) > most)
      throw InvalidArgument("counts", "more assignments than a budget is decided for", "at most 2^31 - 1");
    const BlockTable table(numbers_, ranks, experts, blocks);
    table.fill_counts(values, placement_);
    table.sum(counts_);
    memories_.clear();
    for (const std::int64_t of_rank : tokens) memories_.push_back({.tokens = of_rank, .gap = budget_});
    use({.table = table,
         .counts = counts_,
         .homes = placement_,
         .memories = memories_,
         .top_k = static_cast<int>(k),
         .planner = planner_.get()});
  }
  // A machine that takes as long as the costs by which the planner decides, where there are any.
  Machine machine_of(const StepExpert& expert) const {
    Machine machine = machine_.value_or(Machine{});
    if (machine_ || !options_.costs) return machine;
    const auto set = [&](double Machine::*number, double work, double seconds) {
      const auto& all = machine_numbers();
      const auto known = std::ranges::find(all, number, &MachineNumber::value);
      if (seconds > 0) machine.*number = std::clamp(work / seconds, known->least, known->most);
    };
    set(&Machine::flops_per_second, 2 * expert.work.elements, options_.costs->seconds_per_assignment);
    set(&Machine::link_bytes_per_second, expert.work.bytes, options_.costs->seconds_per_transfer);
    set(&Machine::chunk_seconds, options_.costs->seconds_per_step, 1);
    return machine;
  }

  LayerPlacement placement_;
  RankId rank_;
  PlannerOptions options_;
  std::optional<Machine> machine_;
  std::unique_ptr<Planner> planner_, stay_;
  std::unique_ptr<MeasuredBytes> bytes_;  // none without a budget
  std::int64_t budget_ = 0;
  using MadeOf = std::tuple<std::vector<PhaseBytes>, MemoryOptions, std::array<double, 4>, bool>;
  MadeOf made_of_;
  std::unique_ptr<StepDecider> decider_;
  StepDecision decision_;
  Loan loan_;  // of the decided plan
  ChunkShares shares_;
  std::vector<std::int32_t> numbers_;
  std::vector<RankMemory> memories_;
  Counts counts_;
  StepPlan plan_;
  StepRouter router_;
  SlotTables slot_tables_;
  std::optional<HeldSlots> held_;
  bool held_plan_ = false;  // the last plan is of slots that stay
  std::shared_ptr<RoutesPool> pool_ = std::make_shared<RoutesPool>();
};

// `[2, n]`: places, and how many of this rank's assignments go to each, by expert; those without one come
// first, to -1.
OutArray<std::int64_t> rule_of(const SlotTables& tables, std::int64_t assignments) {
  const auto &places = tables.places(), &counts = tables.counts();
  std::vector<std::int64_t> rule{-1};
  rule.insert(rule.end(), places.begin(), places.end());
  rule.push_back(std::accumulate(counts.begin(), counts.end(), assignments, std::minus{}));
  rule.insert(rule.end(), counts.begin(), counts.end());
  return to_array(std::move(rule), {2, places.size() + 1});
}

// A view of numbers of `routes`, which it keeps alive.
OutArray<std::int64_t> view_of(std::span<std::int64_t> numbers, nb::handle routes) {
  return OutArray<std::int64_t>(numbers.data(), {numbers.size()}, routes);
}
template <auto member>
OutArray<std::int64_t> array_of(nb::handle_t<PooledRoutes> self) {
  return view_of(nb::cast<PooledRoutes&>(self).routes.sent.*member, self);
}
template <auto member>
OutArray<std::int64_t> received_array(nb::handle_t<ReceivedRoutes> self) {
  return view_of(nb::cast<ReceivedRoutes&>(self).*member, self);
}
template <auto member>
auto value_of(const PooledRoutes& self) {
  return self.routes.sent.*member;
}

}  // namespace

void bind_routes(nb::module_& module) {
  nb::class_<ReceivedRoutes>(module, "ReceivedRoutes")
      .def_prop_ro("row_counts", [](const ReceivedRoutes& self) { return self.row_counts; })
      .def_prop_ro("order", &received_array<&ReceivedRoutes::order>)
      .def_prop_ro("computed_at", &received_array<&ReceivedRoutes::computed_at>)
      .def_prop_ro("slots", &received_array<&ReceivedRoutes::slots>)
      .def_prop_ro("pool_rows", &received_array<&ReceivedRoutes::pool_rows>);
  nb::class_<PooledRoutes>(module, "StepRoutes")
      .def_prop_ro("sent_rows", &array_of<&StepRoutes::sent_rows>)
      .def_prop_ro("sent_row_counts", &value_of<&StepRoutes::sent_row_counts>)
      .def_prop_ro("sent_positions",
                   [](nb::handle_t<PooledRoutes> self) {
                     auto& sent = nb::cast<PooledRoutes&>(self).routes.sent;
                     return view_of(std::span(sent.assignments).first(sent.num_sent()), self);
                   })
      .def_prop_ro("own_positions",
                   [](nb::handle_t<PooledRoutes> self) {
                     auto& sent = nb::cast<PooledRoutes&>(self).routes.sent;
                     return view_of(std::span(sent.assignments).subspan(sent.num_sent()), self);
                   })
      .def_prop_ro("row_of", &array_of<&StepRoutes::row_of>)
      .def_prop_ro("sent_counts", &value_of<&StepRoutes::sent_counts>)
      .def_prop_ro("received_counts", &value_of<&StepRoutes::received_counts>)
      .def_prop_ro("native_positions", &value_of<&StepRoutes::native_positions>)
      .def_prop_ro("borrowed", &value_of<&StepRoutes::borrowed>)
      .def_prop_ro("borrowed_counts", &value_of<&StepRoutes::borrowed_counts>)
      .def_prop_ro("lent", &array_of<&StepRoutes::lent>)
      .def_prop_ro("lent_counts", &value_of<&StepRoutes::lent_counts>)
      .def_prop_ro("result_of", &array_of<&StepRoutes::result_of>)
      .def_prop_ro("moves_weights", &value_of<&StepRoutes::moves_weights>)
      .def(
          "receive",
          [](PooledRoutes& self, const InArray<std::int64_t, 1>& arrived, int k) -> ReceivedRoutes& {
            receive_routes(self.routes.sent, values_of(arrived), k, self.routes.received);
            self.renumber_slots();
            return self.routes.received;
          },
          nb::arg("arrived"), nb::arg("k"), nb::rv_policy::reference_internal);

  module.def("parse_bytes",
             [](const std::string& text, const std::string& what) { return parse_bytes(text, what); });
  nb::class_<PhaseBytes>(module, "PhaseBytes")
      .def(
          "__init__",
          [](PhaseBytes* self, std::int64_t token, std::int64_t assignment, std::int64_t sent,
             std::int64_t received, std::int64_t position, std::int64_t borrowed, std::int64_t lent,
             std::int64_t summed, std::int64_t fixed) {
            new (self) PhaseBytes{token, assignment, sent, received, position, borrowed, lent, summed, fixed};
          },
          nb::arg("token") = 0, nb::arg("assignment") = 0, nb::arg("sent") = 0, nb::arg("received") = 0,
          nb::arg("position") = 0, nb::arg("borrowed") = 0, nb::arg("lent") = 0, nb::arg("summed") = 0,
          nb::arg("fixed") = 0)
      .def("to_list",
           [](const PhaseBytes& self) {
             return std::vector{self.per_token,    self.per_assignment, self.per_sent,
                                self.per_received, self.per_position,   self.per_borrowed,
                                self.per_lent,     self.per_summed,     self.fixed};
           })
      .def("of_one_token", [](const PhaseBytes& self, std::int64_t k, std::int64_t ranks) {
        return self.per_token + k * (self.per_assignment + self.per_sent) +
               (ranks - 1) * k * self.per_received + ranks * k * self.per_position + self.fixed;
      });

  nb::class_<Loan>(module, "Loan")
      .def_ro("borrowed", &Loan::borrowed)
      .def_ro("borrowed_counts", &Loan::borrowed_counts)
      .def_ro("lent", &Loan::lent)
      .def_ro("lent_counts", &Loan::lent_counts);
  nb::class_<SlotTables>(module, "SlotTables")
      .def("rule", &rule_of, nb::arg("assignments"))
      .def_prop_ro("at_home", &SlotTables::at_home)
      .def_prop_ro("in_slots", &SlotTables::in_slots)
      .def_prop_ro("moves", &SlotTables::moves)
      .def_prop_ro("borrowed_slots", &SlotTables::borrowed_slots)
      .def_prop_ro("loan", [](const SlotTables& self) { return Loan(self); });
  nb::class_<StepLayout>(module, "StepLayout")
      .def(
          "__init__",
          [](StepLayout* self, const Placement& placement, int layer, int rank, const std::string& planner,
             std::int64_t capacity_factor, std::int64_t min_segment, std::int64_t imbalance_threshold,
             std::optional<std::int64_t> slots) {
            new (self)
                StepLayout(placement.layer(layer), rank,
                           {.kind = parse_planner(planner),
                            .capacity_factor_thousandths = capacity_factor,
                            .min_segment = min_segment,
                            .imbalance_threshold_thousandths = imbalance_threshold,
                            .borrow_slots = slots ? std::min<std::int64_t>(*slots, placement.num_experts())
                                                  : kUnlimitedSlots});
          },
          nb::arg("placement"), nb::arg("layer"), nb::arg("rank"), nb::arg("planner"),
          nb::arg("capacity_factor_thousandths"), nb::arg("min_segment"),
          nb::arg("imbalance_threshold_thousandths"), nb::arg("slots") = nb::none())
      .def("set_costs",
           [](StepLayout& self, double per_assignment, double per_transfer, double per_step) {
             self.set_costs({per_assignment, per_transfer, per_step});
           })
      .def("slots", &StepLayout::slots, nb::arg("counts"))
      .def("held_slots", &StepLayout::held_slots, nb::arg("counts"))
      .def("forget_slots", &StepLayout::forget_slots)
      .def_prop_ro("borrow_slots", &StepLayout::borrow_slots)
      .def("set_machine", &StepLayout::set_machine, nb::arg("numbers"))
      .def(
          "set_links",
          [](StepLayout& self, const Topology& topology, const std::array<double, 3>& work, double row_bytes,
             bool training) {
            self.set_links(topology, {work[0], work[1], work[2]}, row_bytes, training);
          },
          nb::arg("topology"), nb::arg("work"), nb::arg("row_bytes"), nb::arg("training"))
      .def("set_budget", &StepLayout::set_budget, nb::arg("phases"), nb::arg("budget"), nb::arg("bins"),
           nb::arg("elements"), nb::arg("outputs"), nb::arg("weight_bytes"), nb::arg("gradient_bytes"),
           nb::arg("training"))
      .def("step", &StepLayout::step, nb::arg("experts"), nb::arg("counts"), nb::arg("stays"),
           nb::arg("also_if_nothing_moves"))
      .def("decide", &StepLayout::decide, nb::arg("counts"), nb::arg("tokens"), nb::arg("k"))
      .def("plan_shares", &StepLayout::plan_shares, nb::arg("counts"))
      .def("share", &StepLayout::share, nb::arg("experts"), nb::arg("counts"))
      .def("equal_chunk_bytes", &StepLayout::equal_chunk_bytes, nb::arg("counts"), nb::arg("tokens"),
           nb::arg("k"), nb::arg("chunks"))
      .def_prop_ro("refine", &StepLayout::refine)
      .def_prop_ro("plans_chunks", &StepLayout::plans_chunks)
      .def_prop_ro("reason", &StepLayout::reason)
      .def_prop_ro("loan", &StepLayout::loan, nb::rv_policy::copy)
      .def_prop_ro("rank_loads", &StepLayout::rank_loads)
      .def_prop_ro("transfers", &StepLayout::transfers)
      .def_prop_ro("decided_transfers", &StepLayout::decided_transfers)
      .def_prop_ro("natives", &StepLayout::natives);
}

}  // namespace evenkeel::python
