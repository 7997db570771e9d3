#include "evenkeel/sim/method.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"

namespace evenkeel {

namespace {

constexpr const char* kParts =
    "homes (contiguous, eplb:R, moetuner, joint or joint:R, robust or robust:R), a step (ep, llep, level, "
    "level-links, slots:S, best), memory (memfine, budget), two-levels and node-sums joined by +, or fsdp, "
    "or all";

enum class Number { none, optional, needed };

template <class Kind>
struct Part {
  std::string_view name;
  Kind kind;
  const char* says;
  Number number = Number::none;
};

using Homes = Method::Homes;
using Step = Method::Step;
using Memory = Method::Memory;

constexpr std::array<Part<Homes>, 5> kHomes = {{
    {"contiguous", Homes::contiguous, "experts in order"},
    {"eplb", Homes::eplb, "{} copies of popular experts", Number::needed},
    {"moetuner", Homes::moetuner, "MoETuner's homes"},
    {"joint", Homes::joint, "homes by load and traffic together", Number::optional},
    {"robust", Homes::robust, "homes that are level on every part of the recording", Number::optional},
}};
constexpr std::array<Part<Step>, 6> kSteps = {{
    {"ep", Step::ep, "nothing moves"},
    {"llep", Step::llep, "each step's excess moves as LLEP moves it"},
    {"level", Step::level, "each step's excess moves until ranks are level"},
    {"level-links", Step::level_links, "each step's excess moves where links allow"},
    {"slots", Step::slots, "{} borrowed experts a rank stay from step to step", Number::needed},
    {"best", Step::best, "each step the way that is predicted to be fastest"},
}};
constexpr std::array<Part<Memory>, 2> kMemories = {{
    {"memfine", Memory::memfine, "in MemFine's chunks, or more where these do not fit"},
    {"budget", Memory::budget, "in chunks that fit the budget"},
}};

template <class Parts>
auto find_part(const Parts& parts, std::string_view name) {
  return std::ranges::find(parts, name, &Parts::value_type::name);
}

class MethodParser {
 public:
  MethodParser(std::string_view text, const std::string& argument) : text_(text), argument_(argument) {}

  Method parse() {
    method_.name = text_;
    if (text_ == "fsdp") {
      method_.fsdp = true;
      return method_;
    }
    for (const std::string& part : split(text_, '+')) take(part);
    if (method_.node_sums && !method_.two_levels) refuse("node-sums", "needs two-levels");
    return method_;
  }

 private:
  void take(std::string_view part) {
    const std::size_t colon = part.find(':');
    const std::string_view name = part.substr(0, colon);
    std::optional<std::int64_t> number;
    if (colon != std::string_view::npos) number = number_of(part, colon);
    if (const auto found = find_part(kHomes, name); found != kHomes.end()) {
      once(has_homes_, part, found->number, number);
      method_.homes = found->kind;
      method_.copies = static_cast<int>(number.value_or(0));
    } else if (const auto step = find_part(kSteps, name); step != kSteps.end()) {
      once(has_step_, part, step->number, number);
      method_.step = step->kind;
      method_.slots = static_cast<int>(number.value_or(0));
    } else if (const auto memory = find_part(kMemories, name); memory != kMemories.end()) {
      once(has_memory_, part, Number::none, number);
      method_.memory = memory->kind;
    } else if (name == "two-levels") {
      once(method_.two_levels, part, Number::none, number);
    } else if (name == "node-sums") {
      once(method_.node_sums, part, Number::none, number);
    } else {
      refuse(part, part == "fsdp" ? "cannot be combined with other parts" : "is no part of a method");
    }
  }

  std::int64_t number_of(std::string_view part, std::size_t colon) const {
    try {
      return parse_whole(argument_, part.substr(colon + 1), 1, 65536);
    } catch (const InvalidArgument&) {
      refuse(part, "needs a whole number in 1..65536");
    }
  }
  void once(bool& seen, std::string_view part, Number takes, const std::optional<std::int64_t>& number) {
    if (seen) refuse(part, "does not go with an earlier part of the same kind");
    if (takes == Number::needed && !number) refuse(part, fmt::format("needs a number, as in {}:8", part));
    if (takes == Number::none && number) refuse(part, "takes no number");
    seen = true;
  }
  [[noreturn]] void refuse(std::string_view part, std::string_view why) const {
    const std::string of = part == text_ ? "" : fmt::format("'{}': ", text_);
    throw InvalidArgument(argument_, fmt::format("{}'{}' {}", of, part, why), kParts);
  }

  std::string_view text_;
  const std::string& argument_;
  Method method_;
  bool has_homes_ = false, has_step_ = false, has_memory_ = false;
};

}  // namespace

Method parse_method(std::string_view text, const std::string& argument) {
  return MethodParser(text, argument).parse();
}

std::string Method::description() const {
  if (fsdp) return "every rank computes its own tokens, and gathers all weights";
  const auto of = [](const auto& parts, auto kind, int number) {
    return fmt::format(
        fmt::runtime(std::ranges::find(parts, kind, &std::decay_t<decltype(parts[0])>::kind)->says), number);
  };
  std::string text = of(kHomes, homes, copies);
  if (copies > 0 && homes != Homes::eplb) text += fmt::format(", with {} copies of popular experts", copies);
  text += "; " + of(kSteps, step, slots);
  if (two_levels) text += "; a row that several ranks of a node want crosses the link once";
  if (node_sums) text += ", and returns as one sum";
  if (memory != Memory::unlimited) text += "; " + of(kMemories, memory, 0);
  return text;
}

std::vector<Method> parse_methods(std::string_view text, const Known& known, const std::string& argument) {
  // Accepts the name of a usual method even if it is not possible here. The code that knows the reason throws
  // the error later.
  Known all = known;
  all.seconds = all.unlike_links = all.two_levels = all.budget = true;
  all.backward = false;
  std::vector<Method> usual = usual_methods(known);
  for (const Method& method : usual_methods(all))
    if (std::ranges::find(usual, method.name, &Method::name) == usual.end()) usual.push_back(method);
  std::vector<Method> methods;
  for (const std::string& name : split(text, ',')) {
    const auto found = std::ranges::find(usual, name, &Method::name);
    methods.push_back(found != usual.end() ? *found : parse_method(name, argument));
    if (std::ranges::count(methods, name, &Method::name) > 1)
      throw InvalidArgument(argument, fmt::format("'{}' twice", name), "each method once");
  }
  return methods;
}

std::vector<Method> usual_methods(const Known& known) {
  std::vector<Method> methods;
  const auto add = [&](std::string_view name, std::string_view parts) {
    methods.push_back(parse_method(parts));
    methods.back().name = name;
  };
  // At least one copy per rank, and equally many physical experts on every rank.
  int copies = known.num_ranks + (known.num_ranks - known.num_experts % known.num_ranks) % known.num_ranks;
  while (copies + known.num_ranks <= known.num_experts / 8) copies += known.num_ranks;
  add("ep", "ep");
  if (known.seconds) add("fsdp", "fsdp");
  if (known.num_ranks > 1) add("eplb", fmt::format("eplb:{}", copies));  // a rank holds an expert only once
  add("moetuner", "moetuner");
  add("robust", "robust");
  add("llep", "llep");
  add("level", "level");
  if (known.unlike_links) add("level-links", "level-links");
  if (known.two_levels && !known.budget) add("two-levels", "two-levels");
  if (!known.backward && known.num_experts > 1) add("slots", "slots:2");
  if (known.budget) add("memfine", "memfine");
  const bool copied = !known.backward && known.num_ranks > 1;
  add("all", fmt::format("robust{}+{}{}", copied ? fmt::format(":{}", copies) : "",
                         known.seconds ? "best" : "level", known.budget ? "+budget" : ""));
  return methods;
}

}  // namespace evenkeel
