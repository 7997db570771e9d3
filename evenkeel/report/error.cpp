#include "evenkeel/report/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "evenkeel/base/parse.h"
#include "evenkeel/base/printable.h"
#include "evenkeel/report/internal/json.h"

namespace evenkeel {

namespace {

using internal::Json;

// The text between the first pair of quotes; empty if there is none.
std::string quoted(const std::string& text) {
  const std::size_t begin = text.find('\'');
  if (begin == std::string::npos) return "";
  return text.substr(begin + 1, text.find('\'', begin + 1) - begin - 1);
}

}  // namespace

std::string text_of(const Error& error, std::string_view name) {
  for (const Error::Field& field : error.data())
    if (field.name == name)
      if (const auto* text = std::get_if<std::string>(&field.value)) return *text;
  return "";
}

std::string one_line(std::string text) {
  text.erase(text.find_last_not_of("\n\r") + 1);
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return text;
}

std::string to_text(const ErrorReport& error, const std::string& suggestion) {
  const std::string text =
      suggestion.empty() ? error.message : fmt::format("{}; did you mean '{}'?", error.message, suggestion);
  return shortened(printable(one_line(text)), Error::most_message_bytes);
}

std::string to_json(const ErrorReport& error, const std::string& suggestion) {
  Json json = {{"type", error.type}, {"message", to_text(error, suggestion)}};
  for (const Error::Field& field : error.data)
    std::visit([&](const auto& value) { json[field.name] = value; }, field.value);
  return internal::line_of(Json{{"error", std::move(json)}});
}

std::string suggested_word(const Error& error) {
  std::vector<std::string> candidates;
  const std::string allowed = text_of(error, "allowed");
  // If ; separates the allowed values, commas are part of them.
  for (std::string part : split(allowed, allowed.find(';') == std::string::npos ? ',' : ';')) {
    for (const std::string_view lead : {" ", "or "})
      if (part.starts_with(lead)) part.erase(0, lead.size());
    candidates.push_back(part);
  }
  const std::string word = quoted(text_of(error, "why"));
  std::string found = nearest(word, candidates);
  if (!found.empty() || word.find(':') == std::string::npos) return found;
  // In "concentratd:0.9:1", only the part before the parameters is compared with that of "concentrated:F:N".
  for (std::string& candidate : candidates) candidate.resize(std::min(candidate.find(':'), candidate.size()));
  const std::string head = word.substr(0, word.find(':'));
  // If that part is correct, the mistake is in the parameters.
  return std::ranges::find(candidates, head) != candidates.end() ? "" : nearest(head, candidates);
}

}  // namespace evenkeel
