// Names of synthetic workloads, as people type them.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/routing/trace.h"
#include "evenkeel/routing/workload.h"

namespace evenkeel {

namespace {

using Kind = Workload::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 14> names{{
    {"balanced", Kind::balanced},
    {"concentrated", Kind::concentrated},
    {"zipf", Kind::zipf},
    {"lognormal", Kind::lognormal},
    {"drift", Kind::drift},
    {"collapse", Kind::collapse},
    {"w0", Kind::w0_balanced},
    {"w1", Kind::w1_hot_expert_set},
    {"w2", Kind::w2_hot_rank},
    {"w3", Kind::w3_spread_hot_experts},
    {"w4", Kind::w4_source_ragged},
    {"w5", Kind::w5_zero_expert_rank},
    {"w6", Kind::w6_rotating_hotspot},
    {"w7", Kind::w7_burst},
}};

constexpr double max_exponent = 32;

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t colon; (colon = text.find(':')) != std::string_view::npos; text.remove_prefix(colon + 1))
    parts.push_back(text.substr(0, colon));
  parts.push_back(text);
  return parts;
}

[[noreturn]] void refuse(std::string_view text, std::string_view why, std::string allowed) {
  throw InvalidArgument("scenario", fmt::format("'{}': {}", text, why), std::move(allowed));
}

template <class Number>
bool read(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

Workload concentrated(std::string_view text, const std::vector<std::string_view>& parts) {
  Workload workload{.kind = Kind::concentrated};
  if (parts.size() < 3 || parts.size() > 4)
    refuse(text, "needs a share and a number of experts", "concentrated:F:N or concentrated:F:N:spread");
  if (!read(parts[1], workload.share) || !(workload.share >= 0 && workload.share <= 1))
    refuse(text, fmt::format("the share F is '{}'", parts[1]), "a fraction in 0..1, such as 0.95");
  if (!read(parts[2], workload.hot_experts) || workload.hot_experts < 1 ||
      workload.hot_experts > max_trace_experts)
    refuse(text, fmt::format("the number of experts N is '{}'", parts[2]),
           fmt::format("a whole number in 1..{}", max_trace_experts));
  if (parts.size() == 4 && parts[3] != "spread")
    refuse(text, fmt::format("'{}' after the number of experts", parts[3]), "spread, or nothing");
  workload.spread = parts.size() == 4;
  return workload;
}

Workload with_exponent(Kind kind, std::string_view parameter, std::string_view text,
                       const std::vector<std::string_view>& parts) {
  Workload workload{.kind = kind};
  if (parts.size() != 2) refuse(text, "needs one number", fmt::format("{}:{}", parts[0], parameter));
  if (!read(parts[1], workload.exponent) || !(workload.exponent >= 0 && workload.exponent <= max_exponent))
    refuse(text, fmt::format("{} is '{}'", parameter, parts[1]),
           fmt::format("a number in 0..{}", max_exponent));
  return workload;
}

}  // namespace

std::string_view workload_names() {
  return "balanced, concentrated:F:N[:spread], zipf:S, lognormal:SIGMA, drift, collapse, w0..w7";
}

Workload parse_workload(std::string_view text) {
  const auto parts = split(text);
  for (const auto& [name, kind] : names) {
    if (parts[0] != name) continue;
    if (kind == Kind::concentrated) return concentrated(text, parts);
    if (kind == Kind::zipf) return with_exponent(kind, "S", text, parts);
    if (kind == Kind::lognormal) return with_exponent(kind, "SIGMA", text, parts);
    if (parts.size() > 1) refuse(text, fmt::format("{} takes no parameter", name), std::string(name));
    return Workload{.kind = kind};
  }
  refuse(text, "no such workload", std::string(workload_names()));
}

std::string to_string(const Workload& workload) {
  for (const auto& [name, kind] : names) {
    if (kind != workload.kind) continue;
    if (kind == Kind::concentrated)
      return fmt::format("{}:{}:{}{}", name, workload.share, workload.hot_experts,
                         workload.spread ? ":spread" : "");
    if (kind == Kind::zipf || kind == Kind::lognormal) return fmt::format("{}:{}", name, workload.exponent);
    return std::string(name);
  }
  return "unknown";
}

}  // namespace evenkeel
