// The keys of one object in a config.json. Errors give the full name of a key. Python writes null for a
// missing value, so a key with null counts as missing.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

// Words allowed as the value of a key, and their meanings.
template <class Meaning>
using KnownWords = std::vector<std::pair<std::string_view, Meaning>>;

class ConfigKeys : public JsonField {
 public:
  explicit ConfigKeys(const JsonField& object) : JsonField(object) {}

  std::string name(std::string_view member) const;
  bool is_there(std::string_view member) const { return stated(member).has_value(); }
  bool is_null(std::string_view member) const { return find(member) && !is_there(member); }
  bool is_false(std::string_view member) const { return is_there(member) && *at(member) == false; }
  bool is_list(std::string_view member) const { return is_there(member) && at(member)->is_array(); }

  // These throw ParseError if the key is missing.
  JsonField at(std::string_view member) const;
  int integer(std::string_view member, int least, int most) const { return at(member).integer(least, most); }
  int integer_or(std::string_view member, int least, int most, int absent) const {
    return is_there(member) ? integer(member, least, most) : absent;
  }
  // A number, or a list with this number for every layer.
  int same_integer(std::string_view member, int least, int most) const;
  bool flag(std::string_view member, bool absent) const;
  std::string word(std::string_view member) const;  // empty if the key is missing
  std::vector<std::string> words(std::string_view member) const;
  std::vector<std::string> letters(std::string_view member) const;  // the letters of a text value
  // The meaning of each word. Unknown words mean `other`. If `other` is not given, they cause a ParseError.
  template <class Meaning>
  std::vector<Meaning> meanings(std::string_view member, const std::vector<std::string>& words,
                                const KnownWords<Meaning>& known, std::optional<Meaning> other = {}) const {
    std::vector<Meaning> all;
    for (const std::string& word : words) {
      const auto found = std::ranges::find(known, word, &std::pair<std::string_view, Meaning>::first);
      if (found == known.end() && !other)
        fail(member, "has '{}'; known: {}", word, fmt::join(known | std::views::keys, ", "));
      all.push_back(found == known.end() ? *other : found->second);
    }
    return all;
  }

  // Throws ParseError about a key, which may be missing, or about the whole object if `member` is empty.
  template <class... Args>
  [[noreturn]] void fail(std::string_view member, fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file(), member.empty() ? "" : name(member), why, std::forward<Args>(args)...);
  }
};

}  // namespace evenkeel::internal
