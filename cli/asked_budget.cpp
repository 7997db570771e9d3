#include "cli/asked_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/options.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel::cli {

namespace {

constexpr std::int64_t kWholeShare = 100'000;  // 100 % in thousandths of a percent

}  // namespace

std::int64_t AskedBudget::bytes_of(std::int64_t whole) const {
  if (share_thousandths_of_percent == 0) return bytes;
  const double share = static_cast<double>(share_thousandths_of_percent) / kWholeShare;
  return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(whole)));
}

AskedBudget parse_budget(const std::string& option, const std::string& text) {
  AskedBudget asked;
  if (!text.ends_with('%')) {
    asked.bytes = parse_bytes(text, option);
    return asked;
  }
  const std::string number = text.substr(0, text.size() - 1);
  try {
    asked.share_thousandths_of_percent = parse_thousandths(option, number, 1);
  } catch (const InvalidArgument&) {
    throw InvalidArgument(option, fmt::format("'{}'", text),
                          "a share with at most three decimals, such as 12.5%, or a size, such as 512MiB");
  }
  return asked;
}

CLI::Option* add_budgets(CLI::App& app, const std::string& name, std::vector<AskedBudget>& budgets,
                         const std::string& help) {
  const auto read = [&budgets, name](const CLI::results_t& given) {
    budgets.clear();
    for (const std::string& part : split(given.front(), ',')) budgets.push_back(parse_budget(name, part));
    return true;
  };
  return app.add_option(name, read, help)->type_name("B,...");
}

}  // namespace evenkeel::cli
