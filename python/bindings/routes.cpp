// _native.StepLayout: computes what this rank sends, receives, borrows and lends from the counts of all
// ranks, in one call.
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
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/route_tables.h"
#include "evenkeel/plan/slot_tables.h"
#include "evenkeel/step/decide.h"
#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"

namespace nb = nanobind;

namespace evenkeel::python {

namespace {

// A layer on one rank: its homes and planner. Buffers are reused from step to step.
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

  // Sets the machine that costs were predicted with: its numbers in the order of machine_numbers().
  void set_machine(const std::vector<double>& numbers) {
    machine_.emplace();
    for (std::size_t i = 0; i < machine_numbers().size(); ++i)
      (*machine_).*machine_numbers()[i].value = numbers.at(i);
  }

  // Sets the links that `level` plans by, with the machine of set_machine().
  void set_links(const Topology& topology, const ExpertWork& expert, double row_bytes, bool training) {
    options_.links = {topology, machine_.value(), expert, row_bytes, training};
    renew_planner();
  }

  // Sets what decisions under a budget depend on: the bytes of phases, the budget, and an expert's sizes.
  void set_budget(std::vector<PhaseBytes> phases, std::int64_t budget, const std::vector<std::int64_t>& bins,
                  double elements, double outputs, double weight_bytes, double gradient_bytes,
                  bool training) {
    budget_ = budget;
    DecisionOptions options;
    options.expert = {{elements, outputs, weight_bytes}, gradient_bytes};
    options.with_backward = training;
    options.plans_chunks = true;
    options.memory.cost = machine_of(options.expert);
    options.memory.keep_plan = !options_.costs && !machine_;  // the machine's speed is not known
    if (!bins.empty()) options.memory.rule = {ChunkRule::Kind::mact, 1, bins};
    MadeOf made_of{phases, options.memory, {elements, outputs, weight_bytes, gradient_bytes}, training};
    if (decider_ && made_of == made_of_) return;  // the old decider is kept with its buffers
    made_of_ = std::move(made_of);
    bytes_ = std::make_unique<MeasuredBytes>(std::move(phases));
    decider_ = std::make_unique<StepDecider>(*bytes_, options, placement_.num_ranks());
  }

  // Plans the counts [P, E] as one step and returns this rank's runs. If `stays`, nothing moves.
  RouteTables step(const InArray<std::int64_t, 2>& counts, bool stays) {
    const nb::gil_scoped_release release;
    take(counts);
    (stays ? *stay_ : *planner_).plan(counts_, placement_, plan_);
    step_loan_.read(plan_.transfers(), placement_, rank_);
    return route(step_loan_);
  }

  // Plans the counts [P, E] with borrowed experts in slots. Returns the places of this rank's assignments.
  SlotTables slots(const InArray<std::int64_t, 2>& counts) {
    const nb::gil_scoped_release release;
    held_plan_ = false;
    take(counts);
    planner_->plan(counts_, placement_, plan_);
    slot_tables_.make(counts_, plan_, placement_, rank_, options_.borrow_slots);
    return slot_tables_;
  }

  // Like slots(), but experts stay in their slots until the next call; forget_slots() empties the slots.
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

  // Decides on chunks from counts [P, B, E] and each rank's tokens. Returns them in order: first block, end
  // block, whether nothing moves.
  std::vector<std::tuple<int, int, bool>> decide(const InArray<std::int64_t, 3>& counts,
                                                 const std::vector<std::int64_t>& tokens, std::int64_t k) {
    const nb::gil_scoped_release release;
    ask(counts, tokens, k, [&](const StepInputs& in) { decider_->decide(in, decision_); });
    if (!decision_.plans_chunks) begin_shares();
    std::vector<std::tuple<int, int, bool>> chunks;
    for (const Chunk& chunk : decision_.chunks)
      chunks.emplace_back(static_cast<int>(chunk.begin), static_cast<int>(chunk.end), chunk.plain_ep);
    return chunks;
  }
  std::vector<std::tuple<int, int>> refine() const {
    std::vector<std::tuple<int, int>> runs;
    for (const BlockRun& run : decision_.refine) runs.emplace_back(run.begin, run.end);
    return runs;
  }

  // Makes all chunks share one plan, made of these counts [P, E], whatever the budget.
  void plan_shares(const InArray<std::int64_t, 2>& counts) {
    const nb::gil_scoped_release release;
    take(counts);
    planner_->plan(counts_, placement_, decision_.plan);
    begin_shares();
  }

  // This rank's runs of the next chunk under the decided plan; `counts` are those of the chunk.
  RouteTables share(const InArray<std::int64_t, 2>& counts) {
    const nb::gil_scoped_release release;
    take(counts);
    shares_.next(counts_, placement_, plan_);
    return route(loan_);
  }

  // Bytes of the largest of `chunks` equal, balanced chunks, and whether work moves in any of them.
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
  const Loan& step_loan() const { return step_loan_; }
  const StepPlan& step_plan() const { return plan_; }
  const StepPlan& decided_plan() const { return decision_.plan; }
  std::int64_t natives() const { return std::ssize(placement_.natives(rank_)); }

 private:
  void renew_planner() {
    planner_ = make_planner(options_);
    held_.reset();  // held_ uses these options too
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
  RouteTables route(const Loan& loan) {
    deal_.make(counts_, plan_, rank_);
    RouteTables tables;
    tables.make(deal_, placement_, rank_, loan);
    return tables;
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
      throw InvalidArgument("counts", "hold more assignments than a step with a budget can have",
                            "at most 2^31 - 1");
    const BlockTable table(numbers_, ranks, experts, blocks);
    table.fill_counts(values, placement_);
    table.sum(counts_);
    memories_.clear();
    for (const std::int64_t of_rank : tokens) memories_.push_back({.tokens = of_rank, .free_bytes = budget_});
    use({.table = table,
         .counts = counts_,
         .homes = placement_,
         .memories = memories_,
         .top_k = static_cast<int>(k),
         .planner = planner_.get()});
  }
  // The known machine. If only the planner's costs are known, a machine that takes the seconds they say.
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
  std::unique_ptr<MeasuredBytes> bytes_;  // null without a budget
  std::int64_t budget_ = 0;
  using MadeOf = std::tuple<std::vector<PhaseBytes>, MemoryOptions, std::array<double, 4>, bool>;
  MadeOf made_of_;
  std::unique_ptr<StepDecider> decider_;
  StepDecision decision_;
  Loan loan_;       // of the decided plan
  Loan step_loan_;  // of the last step()
  ChunkShares shares_;
  std::vector<std::int32_t> numbers_;
  std::vector<RankMemory> memories_;
  Counts counts_;
  StepPlan plan_;
  Deal deal_;
  SlotTables slot_tables_;
  std::optional<HeldSlots> held_;
  bool held_plan_ = false;  // the last plan was held_slots()
};

// `[T, 3]`: each transfer's expert, home and borrower.
OutArray<std::int64_t> lending_of(const StepPlan& plan) {
  std::vector<std::int64_t> rows;
  for (const Transfer& transfer : plan.transfers())
    rows.insert(rows.end(), {transfer.expert.value(), transfer.from.value(), transfer.to.value()});
  return to_array(std::move(rows), {plan.transfers().size(), 3});
}

// `[2, n]`, in the order of experts. Row 0 is a place, row 1 the number of this rank's assignments that go
// there. The first column is place -1, for assignments without an expert.
OutArray<std::int64_t> rule_of(const SlotTables& tables, std::int64_t assignments) {
  const auto &places = tables.places(), &counts = tables.counts();
  std::vector<std::int64_t> rule{-1};
  rule.insert(rule.end(), places.begin(), places.end());
  rule.push_back(std::accumulate(counts.begin(), counts.end(), assignments, std::minus{}));
  rule.insert(rule.end(), counts.begin(), counts.end());
  return to_array(std::move(rule), {2, places.size() + 1});
}

// `[2, n]`: runs of assignments in the order of experts. Row 0 is what to add to an assignment's index to get
// its position, row 1 the length of the run. Assignments without an expert come first and get the last
// positions.
OutArray<std::int64_t> sent_rule(const RouteTables& tables, std::int64_t assignments) {
  std::vector<std::int64_t> steps{0}, counts{assignments};
  for (const RouteTables::SentRun& run : tables.sent) counts.front() -= run.count;
  steps.front() = assignments - counts.front();
  for (std::int64_t at = counts.front(); const RouteTables::SentRun& run : tables.sent) {
    steps.push_back(run.first - at);
    counts.push_back(run.count);
    at += run.count;
  }
  const std::size_t runs = counts.size();
  steps.insert(steps.end(), counts.begin(), counts.end());
  return to_array(std::move(steps), {2, runs});
}

// `[3, n]`: runs of rows in the order of computing. Row 0 is what to add to a row's index to get its
// position, row 1 the slot, row 2 the length of the run.
OutArray<std::int64_t> computed_rule(const RouteTables& tables) {
  std::vector<std::int64_t> rule, slots, counts;
  for (std::int64_t at = 0; const RouteTables::ComputedRun& run : tables.computed) {
    rule.push_back(run.first - at);
    slots.push_back(run.slot);
    counts.push_back(run.count);
    at += run.count;
  }
  rule.insert(rule.end(), slots.begin(), slots.end());
  rule.insert(rule.end(), counts.begin(), counts.end());
  return to_array(std::move(rule), {3, counts.size()});
}

}  // namespace

void bind_routes(nb::module_& module) {
  nb::class_<RouteTables>(module, "RouteTables")
      .def("sent_rule", &sent_rule, nb::arg("assignments"))
      .def("computed_rule", &computed_rule)
      .def_ro("sent_counts", &RouteTables::sent_counts)
      .def_ro("received_counts", &RouteTables::received_counts)
      .def_ro("own", &RouteTables::own)
      .def_ro("native_positions", &RouteTables::native_positions);

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
      .def(
          "of_one_token",
          [](const PhaseBytes& self, std::int64_t k, std::int64_t ranks, std::int64_t borrowed) {
            return self.per_token + k * (self.per_assignment + self.per_sent) +
                   (ranks - 1) * k * self.per_received + ranks * k * self.per_position + self.fixed +
                   borrowed * (self.per_borrowed + (ranks - 1) * self.per_lent + self.per_summed);
          },
          nb::arg("k"), nb::arg("ranks"), nb::arg("borrowed") = 0);

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
      .def("step", &StepLayout::step, nb::arg("counts"), nb::arg("stays"))
      .def("decide", &StepLayout::decide, nb::arg("counts"), nb::arg("tokens"), nb::arg("k"))
      .def("plan_shares", &StepLayout::plan_shares, nb::arg("counts"))
      .def("share", &StepLayout::share, nb::arg("counts"))
      .def("equal_chunk_bytes", &StepLayout::equal_chunk_bytes, nb::arg("counts"), nb::arg("tokens"),
           nb::arg("k"), nb::arg("chunks"))
      .def_prop_ro("refine", &StepLayout::refine)
      .def_prop_ro("plans_chunks", &StepLayout::plans_chunks)
      .def_prop_ro("reason", &StepLayout::reason)
      .def_prop_ro("loan", &StepLayout::loan, nb::rv_policy::copy)
      .def_prop_ro("step_loan", &StepLayout::step_loan, nb::rv_policy::copy)
      .def("lending", [](const StepLayout& self) { return lending_of(self.decided_plan()); })
      .def("step_lending", [](const StepLayout& self) { return lending_of(self.step_plan()); })
      .def_prop_ro("rank_loads", &StepLayout::rank_loads)
      .def_prop_ro("transfers", &StepLayout::transfers)
      .def_prop_ro("decided_transfers", &StepLayout::decided_transfers)
      .def_prop_ro("natives", &StepLayout::natives);
}

}  // namespace evenkeel::python
