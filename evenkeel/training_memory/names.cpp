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

ExtraTerms counted_terms(ExtraTerms terms, const std::vector<std::string>& with,
                         const std::vector<std::string>& without, bool paper, CrossEntropy cross_entropy) {
  const auto named = [&](std::string_view name) { return std::ranges::find(with, name) != with.end(); };
  for (const NamedTerm& term : named_terms)
    terms.*term.on = named(term.name) || (term.beside_all && named("all")) || (term.usual && !paper);
  for (const std::string& name : without) {
    const auto term = std::ranges::find(named_terms, name, &NamedTerm::name);
    if (term == named_terms.end() || !(terms.*term->on) || named(name))
      throw InvalidArgument(
          "--without",
          fmt::format("'{}' {}", name,
                      named(name) ? "is both turned on and left out" : "is not counted anyway"),
          "a term that is counted by default, and not turned on as well");
    terms.*term->on = false;
  }
  if (terms.expert_outputs && !terms.kept_tensors)
    throw InvalidArgument(
        "--with",
        "expert-outputs needs the term kept-tensors; without it, row 13 of the paper's Table 2 "
        "counts them already",
        "to leave it out, or to count kept-tensors");
  if (terms.layer_gradients && !terms.kept_tensors)
    throw InvalidArgument("--with", "layer-gradients needs the term kept-tensors",
                          "to leave it out, or to count kept-tensors");
  terms.fused_cross_entropy = cross_entropy == CrossEntropy::fused;
  if (cross_entropy != CrossEntropy::chunked) return terms;
  for (const char* name : {"logits", "all"})
    if (named(name))
      throw InvalidArgument("--cross-entropy", fmt::format("'chunked' does not work with --with {}", name),
                            "one of the two");
  terms.logits = false;
  return terms;
}

void parse_recompute(const std::string& argument, const std::string& text, MemorySetup& setup) {
  setup.full_recompute = text == "full";
  setup.selective = {};
  if (text == "none" || text == "full") return;
  for (const std::string& part : split(text, ',')) {
    if (part == "none" || part == "full")
      throw InvalidArgument(argument, fmt::format("'{}' cannot be combined with others", part),
                            fmt::format("{} alone, or parts", part));
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

namespace {

constexpr std::size_t most_symbols = 1 << 16;

// Expands repetitions: "(tt|)*2" becomes "tt|tt|".
std::string without_repeats(const std::string& argument, const std::string& text) {
  const auto fail = [&](const std::string& why) -> void {
    throw InvalidArgument(argument, fmt::format("'{}' {}", text, why),
                          "layers of each piece (3,4,4,3), or Megatron-Core's E, t, m, L and | with (..)*N");
  };
  std::vector<std::size_t> open;  // where the content of each open parenthesis begins in `all`
  std::string all;
  std::size_t last = 0;  // where the text that a * would repeat begins in `all`
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char symbol = text[i];
    if (symbol == ',' || symbol == ' ') continue;
    if (symbol == '(') {
      open.push_back(all.size());
    } else if (symbol == ')') {
      if (open.empty()) fail("has a ) without a (");
      last = open.back();
      open.pop_back();
    } else if (symbol == '*') {
      const std::size_t digits = std::min(text.find_first_not_of("0123456789", i + 1), text.size());
      const std::int64_t times = parse_whole(argument, text.substr(i + 1, digits - i - 1), 1, most_symbols);
      const std::string part = all.substr(last);
      if (part.empty() || part.size() * static_cast<std::size_t>(times) > most_symbols)
        fail("has a * that repeats nothing, or makes more than 65536 symbols");
      for (std::int64_t n = 1; n < times; ++n) all += part;
      i = digits - 1;
    } else if (std::string_view("EtmL|").find(symbol) == std::string_view::npos) {
      fail(fmt::format("has an unknown symbol, {}", symbol));
    } else {
      last = all.size();
      all += symbol;
    }
  }
  if (!open.empty()) fail("has a ( without a )");
  return all;
}

}  // namespace

std::vector<PipelinePiece> parse_pipeline(const std::string& argument, const std::string& text,
                                          std::int64_t prediction_layers) {
  std::vector<PipelinePiece> pieces;
  if (text.find_first_of("EtmL|") == std::string::npos) {
    for (const std::string& layers : split(text, ','))
      pieces.push_back({.layers = parse_whole(argument, layers, 0, most_degree)});
    pieces.front().embedding = true;
    pieces.back().head = true;
    pieces.back().prediction_layers = prediction_layers;
    return pieces;
  }
  for (const std::string& part : split(without_repeats(argument, text), '|'))
    pieces.push_back({.layers = std::ranges::count(part, 't'),
                      .prediction_layers = std::ranges::count(part, 'm'),
                      .embedding = part.find('E') != std::string::npos,
                      .head = part.find('L') != std::string::npos});
  return pieces;
}

}  // namespace evenkeel
