// The options that say what memory a layer may take, and how it makes do with that.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/experiment.h"

namespace evenkeel::cli {

struct BudgetOptions {
  Budget budget;
  std::string cost_file;
};

// --budget --recompute --chunks --bins --cost
void add_budget_options(CLI::App& app, BudgetOptions& options);
// The budget that was asked for, with the file of costs read. Refuses options that have no meaning together.
// `costs_decide`: the costs also decide whether work moves.
Budget budget_of(const CLI::App& app, const BudgetOptions& options, bool backward, bool costs_decide = false);
// Refuses all of them.
void refuse_budget_options(const CLI::App& app, const std::string& why);

// As the options say them: "auto"; "exact", "mact" or a number.
std::string name_of(Recompute recompute);
std::string name_of(const ChunkRule& rule);

// "budget 12.0 MiB a rank (least budget 3.1 MiB), chunks exact, recompute auto"
std::string describe(const Budget& budget, std::int64_t least_budget);

}  // namespace evenkeel::cli
