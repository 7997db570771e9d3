#include "cli/suggestion.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <optional>

#include "cli/options.h"

namespace evenkeel::cli {

namespace {

constexpr std::size_t kLongestWord = 64;  // of options and their words; the distance costs its square

std::string lower(std::string_view word) {
  std::string text(word);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Letters that are missing, too many, others or swapped with their neighbours (optimal string alignment).
std::size_t typing_errors(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last.back();
}

std::string text_of(const Error& error, std::string_view name) {
  for (const Error::Field& field : error.data())
    if (field.name == name)
      if (const auto* text = std::get_if<std::string>(&field.value)) return *text;
  return "";
}

// Between the first quotes, or nothing.
std::string quoted(const std::string& text) {
  const std::size_t begin = text.find('\'');
  if (begin == std::string::npos) return "";
  return text.substr(begin + 1, text.find('\'', begin + 1) - begin - 1);
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestWord) return "";
  const std::string typed = lower(word);
  const std::size_t most = std::clamp<std::size_t>(typed.size() / 3, 1, 3);
  std::string found;
  std::size_t least = most + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const bool begun = typed.size() >= 3 && candidate.starts_with(typed);
    const std::size_t far = begun ? 1 : typing_errors(typed, lower(candidate));
    if (far < least && far < candidate.size()) {
      least = far;
      found = candidate;
    }
  }
  return found;
}

std::string suggestion_for(const Error& error) {
  std::vector<std::string> candidates;
  for (std::string part : split(text_of(error, "allowed"), ',')) {
    for (const std::string_view lead : {" ", "or "})
      if (part.starts_with(lead)) part.erase(0, lead.size());
    candidates.push_back(part);
  }
  const std::string word = quoted(text_of(error, "why"));
  std::string found = nearest(word, candidates);
  if (!found.empty() || word.find(':') == std::string::npos) return found;
  // "concentratd:0.9:1", where concentrated:F:N is one: by what stands before the parameters.
  for (std::string& candidate : candidates) candidate.resize(std::min(candidate.find(':'), candidate.size()));
  return nearest(word.substr(0, word.find(':')), candidates);
}

}  // namespace evenkeel::cli
