#include "evenkeel/io/internal/checkpoint/numbered_experts.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

// "model.layers.3.mlp.experts.17.up_proj": the number, and the text with another in its place.
struct NamedExpert {
  std::string pattern;
  int number = 0;
};

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

  void lone(const std::string& text) const {
    if (named_expert(text)) refuse(text, "a list that names all experts of the layer would do");
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
      if (const auto expert = named_expert(child.get<std::string>()))
        named[expert->pattern].insert(expert->number);
    }
    require_complete(named);
  }

  void object(const Json& json) const {
    std::map<std::string, std::set<int>> named;
    std::map<std::string, std::string> said;
    for (const auto& [key, child] : json.items()) {
      const auto expert = named_expert(key);
      if (!expert) {
        value(child);
        continue;
      }
      named[expert->pattern].insert(expert->number);
      const std::string text = child.dump();
      if (said.emplace(expert->pattern, text).first->second != text)
        refuse(key, fmt::format("it says {}, and of another expert {}; the same of all would do", text,
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
