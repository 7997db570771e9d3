// A subcommand: its options, and what it does once they are read.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace evenkeel::cli {

struct Subcommand {
  CLI::App* app = nullptr;
  std::function<void()> run;
};

// Each function adds its subcommand to the command.
Subcommand add_profile(CLI::App& command);
Subcommand add_convert(CLI::App& command);
Subcommand add_permute(CLI::App& command);
Subcommand add_place(CLI::App& command);
Subcommand add_evaluate(CLI::App& command);
Subcommand add_compare(CLI::App& command);
Subcommand add_plan(CLI::App& command);
Subcommand add_memory(CLI::App& command);
Subcommand add_run(CLI::App& command);
Subcommand add_bench(CLI::App& command);
Subcommand add_demo(CLI::App& command);

}  // namespace evenkeel::cli
