#include <Highs.h>

#include <algorithm>
#include <memory>
#include <string>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/program/run_apart.h"
#include "evenkeel/placement/internal/program/solve.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel {

bool has_exact_solver() {
  return true;
}

namespace exact {

void require_solver() {}

namespace {

HighsLp lp_of(const Program& program) {
  HighsLp lp;
  lp.num_col_ = program.num_columns();
  lp.num_row_ = program.num_rows();
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

// A wrong option name or value is our own mistake and must not pass in silence.
template <class Value>
void set_option(Highs& highs, const std::string& name, Value value) {
  if (highs.setOptionValue(name, value) != HighsStatus::kOk)
    throw Unsupported("this HiGHS does not take the option " + name +
                      "; the version that is tested is set up by " + "`tools/setup.sh highs`");
}

void set_options(Highs& highs, const ProgramOptions& options) {
  set_option(highs, "output_flag", false);
  set_option(highs, "threads", 1);  // nothing works behind a caller's back
  set_option(highs, "random_seed", 0);
  set_option(highs, "time_limit", std::max(options.seconds, 1e-3));
  set_option(highs, "mip_rel_gap", options.relative_gap);
  set_option(highs, "mip_abs_gap", std::max(options.absolute_gap, 1e-7));
}

// A run of HiGHS and what its thread and the caller's tell each other.
struct Run {
  Highs highs;
  Apart apart;
};

void watch(Run& run) {
  run.highs.setCallback([&apart = run.apart](int kind, const std::string&, const HighsCallbackOutput* out,
                                             HighsCallbackInput* in, void*) {
    if (in && apart.must_stop()) in->user_interrupt = true;
    if (kind == kCallbackMipInterrupt && out->mip_primal_bound < kHighsInf &&
        out->mip_dual_bound > -kHighsInf)
      apart.tell(out->mip_primal_bound, out->mip_dual_bound);
  });
  for (const auto kind : {kCallbackMipInterrupt, kCallbackSimplexInterrupt, kCallbackIpmInterrupt})
    run.highs.startCallback(kind);
}

// Only the integer columns are said: the solver finds the others again.
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

ProgramAnswer solve(const Program& program, const ProgramOptions& options, const Monitor& monitor) {
  const auto run = std::make_shared<Run>();
  Highs& highs = run->highs;
  set_options(highs, options);
  if (highs.passModel(lp_of(program)) == HighsStatus::kError)
    throw InvalidArgument("the profile", "makes a program that HiGHS refuses");
  watch(*run);
  give_start(highs, program, options.start);
  const std::shared_ptr<Apart> apart(run, &run->apart);
  ProgramAnswer answer;
  if (!run_apart(
          apart, [run] { run->highs.run(); }, options, monitor))
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

}  // namespace exact
}  // namespace evenkeel
