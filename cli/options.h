// Options whose values are checked when parsed. A wrong value throws InvalidArgument with the option, the
// value and the allowed values.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/parse.h"

namespace evenkeel::cli {

// "fast|exact".
std::string alternatives(const std::vector<std::string>& words);

// An option whose text is parsed by `read`.
CLI::Option* add_text(CLI::App& app, const std::string& name, const std::string& type,
                      const std::string& help, std::function<void(const std::string&)> read);
// A whole number in least..most; `value` holds the default.
CLI::Option* add_whole(CLI::App& app, const std::string& name, std::int64_t& value, std::int64_t least,
                       std::int64_t most, const std::string& help);
// The same without a default.
template <class Whole>
CLI::Option* add_whole(CLI::App& app, const std::string& name, std::optional<Whole>& value,
                       std::int64_t least, std::int64_t most, const std::string& help) {
  return add_text(app, name, "N", help, [&value, name, least, most](const std::string& text) {
    value = static_cast<Whole>(parse_whole(name, text, least, most));
  });
}
// Several whole numbers, separated by commas.
CLI::Option* add_wholes(CLI::App& app, const std::string& name, std::vector<std::int64_t>& values,
                        std::int64_t least, std::int64_t most, const std::string& help);
// Bytes, such as 512MiB.
CLI::Option* add_size(CLI::App& app, const std::string& name, std::int64_t& value, const std::string& help);
// A decimal with at most three places, kept in thousandths without rounding.
CLI::Option* add_thousandths(CLI::App& app, const std::string& name, std::int64_t& value, std::int64_t least,
                             const std::string& help);
// A finite number in [least, below); `value` holds the default, if there is one.
CLI::Option* add_number(CLI::App& app, const std::string& name, double& value, double least, double below,
                        const std::string& help);
CLI::Option* add_number(CLI::App& app, const std::string& name, std::optional<double>& value, double least,
                        double below, const std::string& help);
// One of `words`, which are in the order of the enumeration's values.
template <class Enumeration>
CLI::Option* add_word(CLI::App& app, const std::string& name, Enumeration& chosen,
                      const std::vector<std::string>& words, const std::string& help) {
  const auto read = [&chosen, name, words](const std::string& text) {
    chosen = static_cast<Enumeration>(parse_word(name, text, words));
  };
  return add_text(app, name, alternatives(words), help, read)
      ->default_str(words[static_cast<std::size_t>(chosen)]);
}
CLI::Option* add_json(CLI::App& app, bool& json);

// --capacity-factor, --min-segment and --imbalance-threshold, which apply to every planner. With `by_gain`
// the threshold may also be "auto", its default: the threshold is then 0 and predicted seconds decide.
void add_planner_parameters(CLI::App& app, PlannerOptions& options, bool* by_gain = nullptr);
// --planner A[,B...], at most `most` of them.
void add_planners(CLI::App& app, std::vector<PlannerOptions::Kind>& kinds, std::size_t most);

// Makes every option and positional of a subcommand refuse an empty value, which would look like an option
// that was not given. Call it once all of them are added.
void refuse_empty_values(CLI::App& app);
// Refuses `--option=` without a value: CLI11 would take the next word.
void refuse_empty_values(int argc, const char* const* argv);

// Throws InvalidArgument if the option was given; `why` says why it has no meaning.
void refuse_if_given(const CLI::App& app, const std::string& option, const std::string& why);
bool is_given(const CLI::App& app, const std::string& option);

}  // namespace evenkeel::cli
