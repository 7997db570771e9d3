#include "cli/budget_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/options.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/cost_file.h"

namespace evenkeel::cli {

namespace {

constexpr std::int64_t kMostChunks = 1 << 20;

void read_rule(const std::string& text, ChunkRule& rule) {
  if (text == "exact" || text == "mact") {
    rule.kind = text == "exact" ? ChunkRule::Kind::exact : ChunkRule::Kind::mact;
    return;
  }
  const bool number = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  if (!number)
    throw InvalidArgument("--chunks", fmt::format("'{}'", text),
                          fmt::format("exact, mact, or a whole number in 1..{}", kMostChunks));
  rule.kind = ChunkRule::Kind::equal;
  rule.count = parse_whole("--chunks", text, 1, kMostChunks);
}

void validate_options(const CLI::App& app, const MemoryOptions& memory, bool backward) {
  const ChunkRule& rule = memory.rule;
  if (rule.kind != ChunkRule::Kind::mact) refuse_if_given(app, "--bins", "applies only to --chunks mact");
  if (std::ranges::adjacent_find(rule.bins, std::ranges::greater_equal()) != rule.bins.end())
    throw InvalidArgument("--bins", fmt::format("'{}'", fmt::join(rule.bins, ",")),
                          "chunk counts in ascending order, such as 1,2,4,8");
  const Recompute recompute = memory.recompute;
  if (!backward && (recompute == Recompute::whole || recompute == Recompute::chunk))
    throw InvalidArgument(
        "--recompute",
        fmt::format("'{}', but without --backward nothing is computed again", name_of(recompute)),
        "--backward as well, or to leave it out");
}

// "25%" or "48MiB". Throws InvalidArgument, naming the option.
RequestedBudget parse_budget(const std::string& option, const std::string& text) {
  if (!text.ends_with('%')) return {.bytes = parse_bytes(text, option)};
  try {
    return {.share_thousandths_of_percent =
                parse_thousandths(option, std::string_view(text).substr(0, text.size() - 1), 1)};
  } catch (const InvalidArgument&) {
    throw InvalidArgument(option, fmt::format("'{}'", text),
                          "a share with at most three decimals, such as 12.5%, or a size, such as 512MiB");
  }
}

}  // namespace

void add_budget_options(CLI::App& app, BudgetOptions& options) {
  add_size(app, "--budget", options.budget.bytes,
           "Bytes of each rank's arena (default: the machine's memory)")
      ->default_str("");
  add_word(app, "--recompute", options.recompute, {"none", "whole", "chunk", "auto"},
           "What backward recomputes: nothing, all at once, all by chunk, or what does not fit");
  const auto read_chunks = [&options](const CLI::results_t& given) {
    read_rule(given.front(), options.budget.memory.rule);
    return true;
  };
  app.add_option("--chunks", read_chunks, "Chunks: the fewest that fit, MemFine's tuning, or N equal parts")
      ->type_name("exact|mact|N")
      ->default_str("exact");
  add_wholes(app, "--bins", options.budget.memory.rule.bins, 1, kMostChunks,
             "Chunk counts that mact chooses from");
  app.add_option("--cost", options.cost_file,
                 "File of bench --calibrate, used to choose between ways to run a step")
      ->type_name("FILE");
}

Budget budget_of(const CLI::App& app, const BudgetOptions& options, bool backward, bool costs_decide) {
  Budget budget = options.budget;
  budget.memory.recompute = static_cast<Recompute>(options.recompute);
  validate_options(app, budget.memory, backward);
  if (!is_given(app, "--cost")) return budget;
  if (!budget.cuts() && !costs_decide)
    refuse_if_given(
        app, "--cost",
        "has no effect here: it needs --budget, --chunks or --recompute, or --imbalance-threshold auto");
  budget.memory.cost = read_cost(options.cost_file);
  return budget;
}

CLI::Option* add_budgets(CLI::App& app, const std::string& name, std::vector<RequestedBudget>& budgets,
                         const std::string& help) {
  const auto read = [&budgets, name](const CLI::results_t& given) {
    budgets.clear();
    for (const std::string& part : split(given.front(), ',')) budgets.push_back(parse_budget(name, part));
    return true;
  };
  return app.add_option(name, read, help)->type_name("B,...");
}

}  // namespace evenkeel::cli
