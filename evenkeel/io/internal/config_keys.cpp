#include "evenkeel/io/internal/config_keys.h"

#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

std::string ConfigKeys::name(std::string_view member) const {
  return key() + (key().empty() ? "" : ".") + std::string(member);
}

JsonField ConfigKeys::at(std::string_view member) const {
  if (const auto value = stated(member)) return *value;
  fail(member, "is missing");
}

int ConfigKeys::same_integer(std::string_view member, int least, int most) const {
  if (!is_list(member)) return integer(member, least, most);
  const std::vector<std::int64_t> numbers = at(member).integers();
  if (numbers.empty()) fail(member, "is an empty list; allowed: one number, or one for every layer");
  if (const auto other = std::ranges::find_if(numbers, [&](auto number) { return number != numbers[0]; });
      other != numbers.end())
    fail(member, "lists different numbers, such as {} and {}; allowed: the same number for every layer",
         numbers[0], *other);
  return at(member)[0].integer(least, most);
}

bool ConfigKeys::flag(std::string_view member, bool absent) const {
  const auto value = stated(member);
  if (!value) return absent;
  if (!(*value)->is_boolean()) fail(member, "is a JSON {}, not true or false", (*value)->type_name());
  return (*value)->get<bool>();
}

std::string ConfigKeys::word(std::string_view member) const {
  const auto value = stated(member);
  if (!value) return "";
  if (!(*value)->is_string()) value->fail("is a JSON {}, not a text", (*value)->type_name());
  return (*value)->get<std::string>();
}

std::vector<std::string> ConfigKeys::words(std::string_view member) const {
  const JsonField list = at(member);
  if (!list->is_array()) list.fail("is a JSON {}, not a list", list->type_name());
  std::vector<std::string> all;
  for (const Json& word : *list) {
    if (!word.is_string()) list.fail("lists a JSON {}, not a text", word.type_name());
    all.push_back(word.get<std::string>());
  }
  return all;
}

std::vector<std::string> ConfigKeys::letters(std::string_view member) const {
  if (!is_there(member)) fail(member, "is missing");
  const std::string letters = word(member);
  if (letters.size() > max_layers)
    fail(member, "has letters for {} layers; at most {} are read", letters.size(), max_layers);
  std::vector<std::string> all;
  for (const char letter : letters) all.emplace_back(1, letter);
  return all;
}

}  // namespace evenkeel::internal
