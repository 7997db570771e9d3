// Budgets of a benchmark, as they are asked for: in bytes, or as a share of what plain ep takes.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace evenkeel::cli {

struct AskedBudget {
  std::int64_t bytes = 0;
  std::int64_t share_thousandths_of_percent = 0;  // 0: bytes are given

  // At least a byte.
  std::int64_t bytes_of(std::int64_t whole) const;
};
// "25%" or "48MiB". Throws InvalidArgument, naming the option.
AskedBudget parse_budget(const std::string& option, const std::string& text);

// Several, separated by commas.
CLI::Option* add_budgets(CLI::App& app, const std::string& name, std::vector<AskedBudget>& budgets,
                         const std::string& help);

}  // namespace evenkeel::cli
