#include "evenkeel/training_memory/names.h"

#include <fmt/format.h>

namespace evenkeel {

std::string to_text(const Parallelism& parallel) {
  std::vector<std::string> parts;
  for (const auto& [name, degree] : degree_names)
    if (parallel.*degree > 1) parts.push_back(fmt::format("{}={}", name, parallel.*degree));
  return parts.empty() ? "dp=1" : fmt::format("{}", fmt::join(parts, ","));
}

std::vector<std::string_view> names_of(const ExtraTerms& terms) {
  std::vector<std::string_view> names;
  for (const NamedTerm& term : named_terms)
    if (terms.*term.on) names.push_back(term.name);
  return names;
}

std::string recompute_text(const MemorySetup& setup) {
  if (setup.full_recompute) return "full";
  std::vector<std::string_view> names;
  for (const auto& [name, on] : recompute_parts)
    if (setup.selective.*on) names.push_back(name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

}  // namespace evenkeel
