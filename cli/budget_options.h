// Options for a layer's memory budget, and for how the layer keeps within it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "evenkeel/study/candidate.h"

namespace evenkeel::cli {

struct BudgetOptions {
  Budget budget;
  std::size_t recompute = static_cast<std::size_t>(Recompute::automatic);
  std::string cost_file;
};

// --budget --recompute --chunks --bins --cost
void add_budget_options(CLI::App& app, BudgetOptions& options);
// The requested budget, with the costs read from their file. Refuses options that have no meaning together.
// `costs_decide`: the costs also decide whether work moves.
Budget budget_of(const CLI::App& app, const BudgetOptions& options, bool backward, bool costs_decide = false);

// Several budgets, separated by commas: "25%" or "48MiB".
CLI::Option* add_budgets(CLI::App& app, const std::string& name, std::vector<RequestedBudget>& budgets,
                         const std::string& help);

}  // namespace evenkeel::cli
