// Runs HiGHS on its own thread, so that the caller can continue without it.
//
// HiGHS polls callbacks between its steps, but some steps (presolve, the root linear program) run for many
// seconds without polling. A stop request should not wait for those steps. The caller continues with the best
// answer it has, and the thread ends at its next poll. The process does not wait for the thread at its exit
// either.
#include <Highs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/program/program.h"

namespace evenkeel {

bool has_exact_solver() {
  return true;
}

namespace internal {

void require_solver() {}

namespace {

// Messages between the two threads. Both threads share them, and everything that the work uses, until the
// work ends.
class SolverMailbox {
 public:
  // Called by the worker: whether to stop, and its progress.
  bool must_stop() const { return stop_; }
  void publish(double objective, double bound) {
    const std::lock_guard lock(mutex_);
    const std::pair progress(objective, bound);
    has_new_progress_ = has_new_progress_ || progress != latest_;
    latest_ = progress;
  }

  // Called by the caller's thread.
  void ask_to_stop() { stop_ = true; }
  // Objective and bound if they have changed since the last call.
  std::optional<std::pair<double, double>> take_progress() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(has_new_progress_, false)) return std::nullopt;
    return latest_;
  }

 private:
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  bool has_new_progress_ = false;
  std::pair<double, double> latest_ = {0, 0};
};

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kPollInterval = std::chrono::milliseconds(20);
// Grace periods after a stop request and after the time limit.
constexpr double kGraceSeconds = 0.25;
constexpr double kGraceAfterLimit = 0.75;

std::atomic<int> left_running = 0;

// Static objects must not be destroyed while a thread still uses them, so the process exits without
// destructors.
void end_at_once(int status, void*) {
  if (left_running == 0) return;
  std::fflush(nullptr);
  _exit(status);
}

// A thread. The destructor joins it if its work has ended; otherwise asks it to stop and detaches it.
class DetachableThread {
 public:
  DetachableThread(std::packaged_task<void()> task, SolverMailbox& mailbox) : mailbox_(mailbox) {
    ++left_running;
    try {
      thread_ = std::thread([task = std::move(task)]() mutable {
        task();
        task = {};
        --left_running;  // after all that the work used is destroyed
      });
    } catch (...) {
      --left_running;
      throw;
    }
  }
  ~DetachableThread() {
    if (ended_) {
      thread_.join();
      return;
    }
    mailbox_.ask_to_stop();
    static std::once_flag registered;
    std::call_once(registered, [] { on_exit(end_at_once, nullptr); });
    thread_.detach();
  }
  DetachableThread(const DetachableThread&) = delete;
  DetachableThread& operator=(const DetachableThread&) = delete;

  void note_end() { ended_ = true; }

 private:
  SolverMailbox& mailbox_;
  std::thread thread_;
  bool ended_ = false;
};

// Returns true if the work ended in time.
bool wait(const std::future<void>& end, SolverMailbox& mailbox, double seconds, double unit,
          const Deadline& deadline) {
  const auto begin = Clock::now();
  std::optional<Clock::time_point> asked;
  while (end.wait_for(kPollInterval) != std::future_status::ready) {
    if (const auto progress = mailbox.take_progress())
      deadline.report(progress->first * unit, progress->second * unit);
    const auto now = Clock::now();
    if (!asked && deadline.stop_requested()) {
      asked = now;
      mailbox.ask_to_stop();
    }
    if (asked && Seconds(now - *asked).count() > kGraceSeconds) return false;
    if (Seconds(now - begin).count() > seconds + kGraceAfterLimit) return false;
  }
  return true;
}

// Runs `work` on another thread. True: it ended within about `seconds`. False: it still runs for a while, and
// the caller must not read anything it uses. Rethrows what the work throws. Progress, multiplied by `unit`,
// is reported on the calling thread.
bool run_on_thread(SolverMailbox& mailbox, const std::function<void()>& work, double seconds, double unit,
                   const Deadline& deadline) {
  std::packaged_task<void()> task(work);
  std::future<void> end = task.get_future();
  std::optional<DetachableThread> thread;
  try {
    thread.emplace(std::move(task), mailbox);
  } catch (const std::system_error&) {  // no more threads: run it here
    work();
    return true;
  }
  if (!wait(end, mailbox, seconds, unit, deadline)) return false;
  thread->note_end();
  end.get();
  return true;
}

HighsLp lp_of(const Program& program) {
  HighsLp lp;
  lp.num_col_ = program.num_columns();
  lp.num_row_ = static_cast<int>(program.rows.size());
  lp.col_cost_ = program.costs;
  for (const Program::Bounds& bounds : program.columns) {
    lp.col_lower_.push_back(bounds.lower);
    lp.col_upper_.push_back(bounds.upper);
  }
  for (const Program::Bounds& bounds : program.rows) {
    lp.row_lower_.push_back(bounds.lower);
    lp.row_upper_.push_back(bounds.upper);
  }
  for (const bool integer : program.integer)
    lp.integrality_.push_back(integer ? HighsVarType::kInteger : HighsVarType::kContinuous);
  lp.a_matrix_.format_ = MatrixFormat::kRowwise;
  lp.a_matrix_.start_.assign(program.row_begin.begin(), program.row_begin.end());
  for (const Term& term : program.terms) {
    lp.a_matrix_.index_.push_back(term.column);
    lp.a_matrix_.value_.push_back(term.coefficient);
  }
  return lp;
}

// A wrong option name or value is our own mistake and must not be ignored.
template <class Value>
void set_option(Highs& highs, const std::string& name, Value value) {
  if (highs.setOptionValue(name, value) != HighsStatus::kOk)
    throw Unsupported("this HiGHS rejects the option " + name +
                      "; `tools/setup.sh highs` installs the tested version");
}

// Reported bounds are lowered by the solver's tolerance, 1e-6 of the bound. So the gap requested of the
// solver is narrower by twice that.
constexpr double kGapOfTolerance = 2e-6;

void set_options(Highs& highs, const ProgramOptions& options, double relative_gap) {
  set_option(highs, "output_flag", false);
  set_option(highs, "threads", 1);  // HiGHS must not start worker threads of its own
  set_option(highs, "random_seed", 0);
  set_option(highs, "time_limit", std::max(options.seconds, 1e-3));
  set_option(highs, "mip_rel_gap", std::max(relative_gap - kGapOfTolerance, 0.0));
  set_option(highs, "mip_abs_gap", std::max(options.absolute_gap, 1e-7));
}

// A run of HiGHS, and the messages between its thread and the caller's.
struct Run {
  Highs highs;
  SolverMailbox mailbox;
};

void watch(Run& run) {
  run.highs.setCallback([&mailbox = run.mailbox](int kind, const std::string&, const HighsCallbackOutput* out,
                                                 HighsCallbackInput* in, void*) {
    if (in && mailbox.must_stop()) in->user_interrupt = true;
    if (kind == kCallbackMipInterrupt && out->mip_primal_bound < kHighsInf &&
        out->mip_dual_bound > -kHighsInf)
      mailbox.publish(out->mip_primal_bound, out->mip_dual_bound);
  });
  for (const auto kind : {kCallbackMipInterrupt, kCallbackSimplexInterrupt, kCallbackIpmInterrupt})
    run.highs.startCallback(kind);
}

// Sets only the integer columns: the solver recomputes the others.
void give_start(Highs& highs, const Program& program, std::span<const double> start) {
  if (start.empty()) return;
  std::vector<HighsInt> columns;
  std::vector<double> values;
  for (int column = 0; column < program.num_columns(); ++column)
    if (program.integer[static_cast<std::size_t>(column)]) {
      columns.push_back(column);
      values.push_back(start[static_cast<std::size_t>(column)]);
    }
  highs.setSolution(static_cast<HighsInt>(columns.size()), columns.data(), values.data());
}

}  // namespace

ProgramAnswer solve(const Program& program, const ProgramOptions& options, const Deadline& deadline) {
  const auto run = std::make_shared<Run>();
  Highs& highs = run->highs;
  set_options(highs, options, deadline.relative_gap());
  if (highs.passModel(lp_of(program)) == HighsStatus::kError)
    throw InvalidArgument("the profile", "the solver HiGHS rejects the integer program made from it",
                          "solver fast");
  watch(*run);
  give_start(highs, program, options.start);
  ProgramAnswer answer;
  if (!run_on_thread(
          run->mailbox, [run] { run->highs.run(); }, options.seconds, options.unit, deadline))
    return answer;

  const HighsModelStatus status = highs.getModelStatus();
  if (status == HighsModelStatus::kOptimal) answer.end = ProgramAnswer::End::optimal;
  if (status == HighsModelStatus::kInfeasible || status == HighsModelStatus::kUnboundedOrInfeasible)
    answer.end = ProgramAnswer::End::infeasible;
  const HighsInfo& info = highs.getInfo();
  if (info.primal_solution_status == kSolutionStatusFeasible) answer.values = highs.getSolution().col_value;
  if (answer.end != ProgramAnswer::End::infeasible) answer.bound = info.mip_dual_bound;
  return answer;
}

}  // namespace internal
}  // namespace evenkeel
