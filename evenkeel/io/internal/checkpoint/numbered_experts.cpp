#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/checkpoint/checkpoint_config.h"

namespace evenkeel::internal {

namespace {

// "model.layers.3.mlp.experts.17.up_proj": the number, and the text with another in its place.
struct NamedExpert {
  std::string pattern;
  int number = 0;
};

// With a plain dot for one that a regular expression escapes.
std::string without_escapes(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const std::size_t escaped = text.starts_with("\\.") ? 2 : text.starts_with("[.]") ? 3 : 0;
    plain += escaped > 0 ? '.' : text.front();
    text.remove_prefix(std::max<std::size_t>(escaped, 1));
  }
  return plain;
}

// Whether a pattern (a regular expression, or one of a shell) may match some experts of a layer and not
// others. What it says behind "experts" may be nothing, a name, or any number.
bool may_pick_experts(std::string_view text) {
  constexpr std::string_view word = "experts";
  constexpr std::array<std::string_view, 11> any = {"*",      ".*",     ".+",       "\\d+", "\\d*", "[0-9]+",
                                                    "[0-9]*", "(\\d+)", "([0-9]+)", "\\w+", "[^.]+"};
  const auto is_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto means_all = [&](std::string_view rest, std::string_view ends) {
    return rest.empty() || is_name(rest[0]) || ends.find(rest[0]) != std::string_view::npos ||
           std::ranges::any_of(any, [&](std::string_view each) { return rest.starts_with(each); });
  };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::string_view rest = text.substr(at + word.size());
    if (means_all(rest, ")|$/:")) continue;
    if (rest[0] != '.' || !means_all(rest.substr(1), ")|$")) return true;
  }
  return false;
}

// The first expert that a text names; `pattern` is without its number.
std::optional<NamedExpert> named_expert(std::string_view text) {
  constexpr std::string_view word = "experts.";
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t begin = at + word.size();
    NamedExpert named;
    const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), named.number);
    if (error == std::errc::invalid_argument || text[begin] == '-') continue;
    if (error != std::errc{}) named.number = -1;
    named.pattern = std::string(text.substr(0, begin)) + "*" + std::string(end, text.data() + text.size());
    return named;
  }
  return std::nullopt;
}

class Check {
 public:
  Check(int num_experts, const std::string& file) : num_experts_(num_experts), file_(file) {}

  void value(const Json& json) const {
    if (json.is_string()) return lone(json.get<std::string>());
    if (json.is_array()) return list(json);
    if (json.is_object()) return object(json);
  }

 private:
  [[noreturn]] void refuse(const std::string& text, const std::string& why) const {
    throw Unsupported(fmt::format(
        "{}: '{}' speaks of one expert by its number, which this cannot renumber; {}", file_, text, why));
  }

  void lone(const std::string& given) const {
    const std::string text = without_escapes(given);
    if (named_expert(text)) refuse(given, "a list that names all experts of the layer would do");
    require_no_pick(given, text);
  }

  void require_no_pick(const std::string& given, const std::string& text) const {
    if (may_pick_experts(text))
      throw Unsupported(fmt::format(
          "{}: '{}' may pick out some experts of a layer by their numbers, which this cannot renumber; "
          "\\d+ or .* for all of them would do",
          file_, given));
  }

  // By pattern, the experts named with it.
  void require_complete(const std::map<std::string, std::set<int>>& named) const {
    for (const auto& [pattern, numbers] : named) {
      for (int expert = 0; expert < num_experts_; ++expert)
        if (!numbers.contains(expert))
          refuse(with_number(pattern, *numbers.begin()),
                 fmt::format("it names {} of the {} experts, and {} is not among them; all or none would do",
                             numbers.size(), num_experts_, expert));
      if (std::ssize(numbers) != num_experts_)
        refuse(with_number(pattern, *numbers.rbegin()),
               fmt::format("config.json says that there are {} experts", num_experts_));
    }
  }

  static std::string with_number(std::string pattern, int number) {
    return pattern.replace(pattern.find('*', pattern.find("experts.")), 1, std::to_string(number));
  }

  void list(const Json& json) const {
    std::map<std::string, std::set<int>> named;
    for (const Json& child : json) {
      if (!child.is_string()) {
        value(child);
        continue;
      }
      const std::string given = child.get<std::string>();
      const std::string text = without_escapes(given);
      if (const auto expert = named_expert(text))
        named[expert->pattern].insert(expert->number);
      else
        require_no_pick(given, text);
    }
    require_complete(named);
  }

  void object(const Json& json) const {
    std::map<std::string, std::set<int>> named;
    std::map<std::string, std::string> said;
    for (const auto& [key, child] : json.items()) {
      const std::string text = without_escapes(key);
      const auto expert = named_expert(text);
      if (!expert) {
        require_no_pick(key, text);
        value(child);
        continue;
      }
      named[expert->pattern].insert(expert->number);
      const std::string says = child.dump();
      if (said.emplace(expert->pattern, says).first->second != says)
        refuse(key, fmt::format("it says {}, and of another expert {}; the same of all would do", says,
                                said.at(expert->pattern)));
      value(child);
    }
    require_complete(named);
  }

  const int num_experts_;
  const std::string& file_;
};

}  // namespace

void require_all_or_no_experts(const Json& config, int num_experts, const std::string& file) {
  Check(num_experts, file).value(config);
}

}  // namespace evenkeel::internal
