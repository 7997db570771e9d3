#include "evenkeel/training_memory/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"

namespace evenkeel {

std::string to_text(const Parallelism& parallel) {
  std::vector<std::string> parts;
  for (const auto& [name, degree] : degree_names)
    if (parallel.*degree > 1) parts.push_back(fmt::format("{}={}", name, parallel.*degree));
  return parts.empty() ? "dp=1" : fmt::format("{}", fmt::join(parts, ","));
}

std::vector<std::string> parse_terms(const std::string& argument, const std::string& text) {
  std::vector<std::string_view> names = {"all"};
  for (const NamedTerm& term : named_terms) names.push_back(term.name);
  std::vector<std::string> given = split(text, ',');
  for (const std::string& name : given)
    if (std::ranges::count(given, name) > 1)
      throw InvalidArgument(argument, fmt::format("'{}' twice", name), "each once");
  for (const std::string& name : given)
    if (std::ranges::find(names, name) == names.end())
      throw InvalidArgument(argument, fmt::format("'{}'", name), fmt::format("{}", fmt::join(names, ", ")));
  return given;
}

std::vector<std::string_view> names_of(const ExtraTerms& terms) {
  std::vector<std::string_view> names;
  for (const NamedTerm& term : named_terms)
    if (terms.*term.on) names.push_back(term.name);
  return names;
}

void parse_recompute(const std::string& argument, const std::string& text, MemorySetup& setup) {
  setup.full_recompute = text == "full";
  setup.selective = {};
  if (text == "none" || text == "full") return;
  for (const std::string& part : split(text, ',')) {
    if (part == "none" || part == "full")
      throw InvalidArgument(argument, fmt::format("'{}' beside others", part), "it alone, or parts");
    const auto known = std::ranges::find(recompute_parts | std::views::keys, part).base();
    if (known == recompute_parts.end())
      throw InvalidArgument(
          argument, fmt::format("'{}'", part),
          fmt::format("none, full, or parts as --recompute-modules of Megatron-Core names them: {}",
                      fmt::join(recompute_parts | std::views::keys, ", ")));
    if (setup.selective.*known->second)
      throw InvalidArgument(argument, fmt::format("'{}' twice", part), "each once");
    setup.selective.*known->second = true;
  }
}

std::string recompute_text(const MemorySetup& setup) {
  if (setup.full_recompute) return "full";
  std::vector<std::string_view> names;
  for (const auto& [name, on] : recompute_parts)
    if (setup.selective.*on) names.push_back(name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

}  // namespace evenkeel
