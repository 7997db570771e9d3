#include "evenkeel/report/locale_text.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace evenkeel {

namespace {

bool ends_with_utf8(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.ends_with("utf-8") || name.ends_with("utf8");
}

std::string locale_name() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') return value;
  return "C";
}

bool find_utf8() {
  const locale_t locale = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  // locale not installed here, so judge by its name
  if (locale == nullptr) return ends_with_utf8(locale_name());
  const bool utf8 = ends_with_utf8(::nl_langinfo_l(CODESET, locale));
  ::freelocale(locale);
  return utf8;
}

bool characters_are_utf8() {
  static const bool utf8 = find_utf8();
  return utf8;
}

// The characters used in pictures, each with an ASCII replacement of the same width.
constexpr std::array<std::pair<std::string_view, char>, 22> kPlain = {
    {{"█", '#'}, {"▉", '#'}, {"▊", '#'}, {"▋", '#'}, {"▌", '#'}, {"▍", '-'}, {"▎", '-'}, {"▏", '-'},
     {"░", '.'}, {"▒", '+'}, {"▓", '*'}, {"·", '-'}, {"▁", '.'}, {"▂", '.'}, {"▃", ':'}, {"▄", ':'},
     {"▅", '+'}, {"▆", '+'}, {"▇", '*'}, {"│", '|'}, {"┤", '|'}, {"┄", '-'}}};

// Converts text that already went through printable().
std::string ascii(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) ++end;
    const std::string_view character = text.substr(at, end - at);
    at = end;
    const auto plain = std::ranges::find(kPlain, character, &std::pair<std::string_view, char>::first);
    if (character.size() == 1)
      out += character;
    else if (plain != kPlain.end())
      out += plain->second;
    else
      for (const char byte : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return out;
}

}  // namespace

std::string in_this_locale(std::string text) {
  return characters_are_utf8() ? std::move(text) : ascii(text);
}

}  // namespace evenkeel
