// The options that say what memory a layer may take, and how it makes do with that.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/experiment.h"

namespace evenkeel::cli {

struct BudgetOptions {
  std::int64_t budget_bytes = Arena::kNoBudget;
  MemoryOptions memory;
  std::string cost_file;
};

// --budget --recompute --chunks --bins --cost
void add_budget_options(CLI::App& app, BudgetOptions& options);
// Refuses what has no meaning together, reads the file of costs, and sets both of `setup`.
void apply_budget(const CLI::App& app, const BudgetOptions& options, ExperimentSetup& setup);

// As the options say them: "auto"; "exact", "mact" or a number.
std::string name_of(Recompute recompute);
std::string name_of(const ChunkRule& rule);

// Whether steps of such a layer may be cut or computed again at all.
bool is_budgeted(const ExperimentSetup& setup);
// "budget 12.0 MiB a rank (least 3.1 MiB), chunks exact, recompute auto"
std::string describe_budget(const ExperimentSetup& setup, std::int64_t least_budget);

}  // namespace evenkeel::cli
