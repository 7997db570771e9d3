#include "cli/budget_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "cli/options.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/cost_file.h"

namespace evenkeel::cli {

namespace {

constexpr std::array<std::pair<const char*, Recompute>, 4> kPolicies = {{{"none", Recompute::none},
                                                                         {"whole", Recompute::whole},
                                                                         {"chunk", Recompute::chunk},
                                                                         {"auto", Recompute::automatic}}};
constexpr std::int64_t kMostChunks = 1 << 20;

Recompute parse_recompute(const std::string& text) {
  for (const auto& [name, policy] : kPolicies)
    if (text == name) return policy;
  throw InvalidArgument("--recompute", fmt::format("'{}'", text), "none, whole, chunk, auto");
}

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
  if (rule.kind != ChunkRule::Kind::mact) refuse_if_given(app, "--bins", "is about --chunks mact");
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

}  // namespace

void add_budget_options(CLI::App& app, BudgetOptions& options) {
  add_size(app, "--budget", options.budget.bytes, "Of each rank's arena; without, what the machine has")
      ->default_str("");
  const auto read_recompute = [&options](const CLI::results_t& given) {
    options.budget.memory.recompute = parse_recompute(given.front());
    return true;
  };
  app.add_option("--recompute", read_recompute,
                 "What backward computes again: nothing, all at once, all by chunk, or what has no capacity")
      ->type_name("none|whole|chunk|auto")
      ->default_str("auto");
  const auto read_chunks = [&options](const CLI::results_t& given) {
    read_rule(given.front(), options.budget.memory.rule);
    return true;
  };
  app.add_option("--chunks", read_chunks, "The fewest that fit, MemFine's tuning, or so many equal parts")
      ->type_name("exact|mact|N")
      ->default_str("exact");
  add_wholes(app, "--bins", options.budget.memory.rule.bins, 1, kMostChunks,
             "Chunk counts that mact chooses from");
  app.add_option("--cost", options.cost_file,
                 "What bench --calibrate wrote, for the choice between ways to run a step")
      ->type_name("FILE");
}

Budget budget_of(const CLI::App& app, const BudgetOptions& options, bool backward, bool costs_decide) {
  validate_options(app, options.budget.memory, backward);
  Budget budget = options.budget;
  if (!is_given(app, "--cost")) return budget;
  if (!budget.cuts() && !costs_decide)
    refuse_if_given(app, "--cost",
                    "is about steps that may be cut, and nothing cuts them; it also decides under "
                    "--imbalance-threshold auto");
  budget.memory.cost = read_cost(options.cost_file);
  return budget;
}

void refuse_budget_options(const CLI::App& app, const std::string& why) {
  for (const char* option : {"--budget", "--recompute", "--chunks", "--bins", "--cost"})
    refuse_if_given(app, option, why);
}

std::string name_of(Recompute recompute) {
  return std::ranges::find(kPolicies, recompute, &std::pair<const char*, Recompute>::second)->first;
}

std::string name_of(const ChunkRule& rule) {
  if (rule.kind == ChunkRule::Kind::equal) return fmt::format("{}", rule.count);
  return rule.kind == ChunkRule::Kind::exact ? "exact" : "mact";
}

std::string describe(const Budget& budget, std::int64_t least_budget) {
  const std::string given =
      budget.is_given() ? fmt::format("budget {} a rank", format_bytes(budget.bytes)) : "no budget";
  return fmt::format("{} (least budget {}), chunks {}, recompute {}", given, format_bytes(least_budget),
                     name_of(budget.memory.rule), name_of(budget.memory.recompute));
}

}  // namespace evenkeel::cli
