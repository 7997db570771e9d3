// The steps of `evenkeel run` as a timeline: ranks, phases, weights sent, and bytes in use.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "evenkeel/report/internal/figures.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

namespace {

double start_of(const CandidateTimeline& step) {
  double start = step.ranks.front().phases.front().begin;
  for (const StepRecord& rank : step.ranks) start = std::min(start, rank.phases.front().begin);
  return start;
}

// Adds the step of one candidate, which begins at time 0.
class StepTrace {
 public:
  StepTrace(ChromeTrace& trace, const CandidateTimeline& step)
      : trace_(trace), step_(step), first_process_(trace.processes.size()), start_(start_of(step)) {}

  void add_as(const std::string& planner) {
    for (std::size_t rank = 0; rank < step_.ranks.size(); ++rank) {
      trace_.processes.push_back({fmt::format("{}: rank {}", planner, rank), {"step"}});
      add_passes(rank);
      add_memory(rank);
    }
    for (const Transfer& transfer : step_.transfers) add_flow(transfer);
  }

 private:
  using Phases = std::span<const TimedPhase>;

  void add_passes(std::size_t rank) {
    const Phases phases = step_.ranks[rank].phases;
    const auto backward =
        std::ranges::find(phases, true, [](const TimedPhase& phase) { return phase.moment.backward; });
    const auto forward_phases = static_cast<std::size_t>(backward - phases.begin());
    add_pass(rank, "forward", phases.first(forward_phases));
    if (forward_phases < phases.size()) add_pass(rank, "backward", phases.subspan(forward_phases));
  }

  void add_pass(std::size_t rank, const char* name, Phases phases) {
    double cpu_seconds = 0;
    for (const TimedPhase& phase : phases) cpu_seconds += phase.cpu_seconds;
    add_slice(rank, name, "pass", {{}, phases.front().begin, phases.back().end, cpu_seconds});
    for (const TimedPhase& phase : phases) add_slice(rank, name_of(phase.moment.phase), "phase", phase);
  }

  void add_slice(std::size_t rank, std::string_view name, const char* category, const TimedPhase& phase) {
    ChromeTrace::Args args;
    if (phase.moment.chunk >= 0) args.emplace_back("chunk", std::int64_t{phase.moment.chunk});
    trace_.slices.push_back({first_process_ + rank, 0, std::string(name), category, since_start(phase.begin),
                             since_start(phase.end), phase.cpu_seconds, std::move(args)});
  }

  // Adds counters for the total bytes in use, and for the bytes of buffers by name.
  void add_memory(std::size_t rank) {
    const StepRecord& record = step_.ranks[rank];
    const std::size_t points = record.in_use.size();
    for (std::size_t point = 0; point < points; ++point)
      add_counter(rank, "memory", point, record.in_use[point]);
    std::map<std::string_view, std::map<std::size_t, std::int64_t>> changes;  // by name and point
    for (const StepRecord::Lent& lent : record.buffers) {
      auto& of_name = changes[lent.loan.name];
      of_name[lent.begin] += lent.loan.bytes;
      if (lent.end < points) of_name[lent.end] -= lent.loan.bytes;
    }
    for (const auto& [name, of_name] : changes) {
      std::int64_t bytes = 0;
      for (const auto& [point, change] : of_name)
        add_counter(rank, fmt::format("memory: {}", name), point, bytes += change);
    }
  }

  void add_counter(std::size_t rank, std::string name, std::size_t point, std::int64_t bytes) {
    // A record can begin before time 0, which is the ranks' barrier at the start of the step.
    const double seconds = std::max(0.0, since_start(step_.ranks[rank].seconds[point]));
    trace_.counters.push_back({first_process_ + rank, std::move(name), seconds, bytes});
  }

  // Adds an arrow from the lender's phase that sends weights to the phase in which the borrower uses them.
  // The latter begins when all weights have arrived.
  void add_flow(const Transfer& transfer) {
    const double lends = weights_of(transfer.from).begin;
    const double arrives = weights_of(transfer.to).end;
    trace_.flows.push_back({fmt::format("expert {}", transfer.expert.value()),
                            "weights",
                            {first_process_ + transfer.from.offset(), 0, since_start(lends)},
                            {first_process_ + transfer.to.offset(), 0, since_start(arrives)}});
  }

  // The phase that sends weights. Every forward pass has one, with other phases after it.
  const TimedPhase& weights_of(RankId rank) const {
    return *std::ranges::find(step_.ranks[rank.offset()].phases, StepMoment{.phase = Phase::transfer},
                              &TimedPhase::moment);
  }

  double since_start(double seconds) const { return seconds - start_; }

  ChromeTrace& trace_;
  const CandidateTimeline& step_;
  const std::size_t first_process_;
  const double start_;
};

}  // namespace

ChromeTrace timeline_of(const RunReport& report) {
  const ExperimentSetup& setup = report.setup;
  const Figures& figures = report.checked.figures;
  ChromeTrace trace;
  trace.about = {{"batch", report.batch},
                 {"layer", internal::layer_line(setup.shape, setup.placement.num_ranks(), setup.backward)},
                 {"steps", "the last one measured under each planner; each begins at 0"},
                 {"clock",
                  "a slice shows wall-clock time, including waits for other ranks and for a core; its "
                  "thread's CPU time is tdur"}};
  for (std::size_t i = 0; i < figures.timelines.size(); ++i)
    StepTrace(trace, figures.timelines[i]).add_as(internal::planner_of(figures.candidates[i]));
  return trace;
}

}  // namespace evenkeel
