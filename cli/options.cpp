#include "cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "cli/error_report.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel::cli {

namespace {

using Kind = PlannerOptions::Kind;

template <class Numbers>
std::string joined(const Numbers& numbers) {
  return fmt::format("{}", fmt::join(numbers, ","));
}

// The values that an option accepts, in words, derived from its type name.
std::string allowed_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type == "FILE") return "the name of a file";
  if (type == "DIR") return "the name of a folder";
  if (type == "N") return "a whole number";
  if (type == "X") return "a number";
  if (type == "SIZE") return "a size, such as 512MiB";
  if (type.find('|') != std::string::npos &&
      std::ranges::none_of(type, [](unsigned char c) { return std::isupper(c); }))
    return fmt::format("{}", fmt::join(split(type, '|'), ", "));
  return fmt::format("{}: {}", type, option.get_description());
}

}  // namespace

std::string alternatives(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, "|"));
}

CLI::Option* add_text(CLI::App& app, const std::string& name, const std::string& type,
                      const std::string& help, std::function<void(const std::string&)> read) {
  const auto parse = [read = std::move(read)](const CLI::results_t& given) {
    read(given.front());
    return true;
  };
  return app.add_option(name, parse, help)->type_name(type);
}

CLI::Option* add_whole(CLI::App& app, const std::string& name, std::int64_t& value, std::int64_t least,
                       std::int64_t most, const std::string& help) {
  const auto read = [&value, name, least, most](const std::string& text) {
    value = parse_whole(name, text, least, most);
  };
  return add_text(app, name, "N", help, read)->default_str(fmt::format("{}", value));
}

CLI::Option* add_wholes(CLI::App& app, const std::string& name, std::vector<std::int64_t>& values,
                        std::int64_t least, std::int64_t most, const std::string& help) {
  const auto read = [&values, name, least, most](const std::string& text) {
    values.clear();
    for (const std::string& part : split(text, ',')) values.push_back(parse_whole(name, part, least, most));
  };
  return add_text(app, name, "N,...", help, read)->default_str(joined(values));
}

CLI::Option* add_size(CLI::App& app, const std::string& name, std::int64_t& value, const std::string& help) {
  return add_text(app, name, "SIZE", help,
                  [&value, name](const std::string& text) { value = parse_bytes(text, name); });
}

CLI::Option* add_thousandths(CLI::App& app, const std::string& name, std::int64_t& value, std::int64_t least,
                             const std::string& help) {
  const auto read = [&value, name, least](const std::string& text) {
    value = parse_thousandths(name, text, least);
  };
  return add_text(app, name, "X", help, read)->default_str(format_thousandths(value));
}

CLI::Option* add_number(CLI::App& app, const std::string& name, std::optional<double>& value, double least,
                        double below, const std::string& help) {
  return add_text(app, name, "X", help, [&value, name, least, below](const std::string& text) {
    value = parse_number(name, text, least, below);
  });
}

CLI::Option* add_number(CLI::App& app, const std::string& name, double& value, double least, double below,
                        const std::string& help) {
  const auto read = [&value, name, least, below](const std::string& text) {
    value = parse_number(name, text, least, below);
  };
  return add_text(app, name, "X", help, read)->default_str(fmt::format("{}", value));
}

CLI::Option* add_json(CLI::App& app, bool& json) {
  return app.add_flag("--json", json, "Print one JSON object on stdout");
}

void add_planner_parameters(CLI::App& app, PlannerOptions& options, bool* by_gain) {
  add_thousandths(app, "--capacity-factor", options.capacity_factor_thousandths, 1000,
                  "least-loaded: a rank holds at most this times the mean (alpha)");
  add_whole(app, "--min-segment", options.min_segment, 0, kAnySize,
            "Fewest assignments for which a rank borrows an expert, except its last piece (m)");
  const char* const threshold = "--imbalance-threshold";
  if (by_gain == nullptr) {
    add_thousandths(app, threshold, options.imbalance_threshold_thousandths, 0,
                    "Below this max/mean of experts (level: ranks) nothing moves (lambda); 0 always plans");
    return;
  }
  options.imbalance_threshold_thousandths = 0;
  *by_gain = true;
  add_text(app, threshold, "auto|X",
           "Below this max/mean of experts (level: ranks) nothing moves (lambda); auto: by gain",
           [&options, by_gain, threshold](const std::string& text) {
             *by_gain = text == "auto";
             if (!*by_gain && text.find_first_not_of("0123456789.") != std::string::npos)
               throw InvalidArgument(threshold, fmt::format("'{}'", text),
                                     "auto, or max/mean from 0, such as 1.25");
             options.imbalance_threshold_thousandths = *by_gain ? 0 : parse_thousandths(threshold, text, 0);
           })
      ->default_str("auto");
}

void add_planners(CLI::App& app, std::vector<Kind>& kinds, std::size_t most) {
  const auto read = [&kinds, most](const std::string& text) {
    kinds.clear();
    for (const std::string& name : split(text, ',')) {
      const Kind kind = parse_planner(name, "--planner");
      if (std::ranges::find(kinds, kind) != kinds.end())
        throw InvalidArgument("--planner", fmt::format("'{}' twice", name), "each planner once");
      kinds.push_back(kind);
    }
    if (kinds.size() > most) throw InvalidArgument("--planner", fmt::format("'{}'", text), "one planner");
  };
  std::vector<std::string_view> names;
  for (Kind kind : kinds) names.push_back(name_of(kind));
  add_text(app, "--planner", most == 1 ? "NAME" : "A,B,...",
           "ep (no balancing), least-loaded (LLEP) or level", read)
      ->default_str(joined(names));
}

void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_expected_max() == 0) continue;  // a flag
    option->check([&app, option](const std::string& value) {
      if (value.empty()) throw InvalidArgument(option->get_name(), "''", allowed_of(*option));
      // CLI11 takes the next word as the value, even if it is another option.
      if (option->nonpositional() && value.front() == '-' && app.get_option_no_throw(value) != nullptr)
        throw InvalidArgument(option->get_name(), fmt::format("has no value before {}", value),
                              allowed_of(*option));
      return std::string();
    });
  }
}

void refuse_empty_values(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") return;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      throw InvalidArgument(kCommandLine, fmt::format("'{}' has no value", word), "a value after the =");
  }
}

bool is_given(const CLI::App& app, const std::string& option) {
  return app.count(option) > 0;
}

void refuse_if_given(const CLI::App& app, const std::string& option, const std::string& why) {
  if (is_given(app, option)) throw InvalidArgument(option, why, "to leave it out");
}

}  // namespace evenkeel::cli
