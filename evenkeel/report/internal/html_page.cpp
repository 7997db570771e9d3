#include "evenkeel/report/internal/html_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/report/internal/page_files.h"

namespace evenkeel {

void require_pages() {
  if (page_files::d3.empty())
    throw Unsupported(
        "this build has no HTML pages, since d3 was not found: install node-d3 and build again");
}

namespace internal {

namespace {

std::string escaped(const std::string& text) {
  std::string html;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      default:
        html += letter;
    }
  }
  return html;
}

// A name must not be able to close the script element. In JSON, "<" occurs only in strings, where "\u003c"
// means the same character.
std::string for_script(const Json& json) {
  std::string text;
  for (const char letter : json.dump(-1, ' ', true, Json::error_handler_t::replace)) {
    if (letter == '<')
      text += "\\u003c";
    else
      text += letter;
  }
  return text;
}

}  // namespace

Json page_of(const std::string& title, const PageOrigin& origin) {
  return {{"title", title},
          {"command", origin.command},
          {"made_with", origin.made_with},
          {"notes", Json::array()},
          {"sections", Json::array()}};
}

Json column(const std::string& key, const std::string& label, const char* unit) {
  return {{"key", key}, {"label", label}, {"unit", unit}};
}

Json tile(const std::string& label, const Json& before, const Json& after, const char* unit) {
  Json made = {{"label", label}, {"after", after}, {"unit", unit}};
  if (!before.is_null()) made["before"] = before;
  return made;
}

std::string html_page(const Json& document) {
  require_pages();
  // The page's content security policy allows no network request at all.
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n"
      "<noscript>The page is drawn by a script, which this browser does not run. It contains its numbers as "
      "JSON.</noscript>\n"
      "<script type=\"application/json\" id=\"data\">{}</script>\n<!--\n{}-->\n<script>\n{}</script>\n"
      "<script>\n{}{}</script>\n</body>\n</html>\n",
      escaped(document.at("title").get<std::string>()), page_files::style, for_script(document),
      page_files::d3_licence, page_files::d3, page_files::drawing, page_files::script);
}

Json drawn(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (std::abs(value) >= 1000 && std::abs(value) < 9e15) {
    const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 3);
    return static_cast<std::int64_t>(std::round(std::round(value / unit) * unit));
  }
  const std::string text = fmt::format("{:.4g}", value);
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  if (rounded == std::round(rounded)) return static_cast<std::int64_t>(rounded);
  return rounded;
}

Json drawn(std::span<const double> values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(drawn(value));
  return list;
}

Json drawn(std::span<const std::int64_t> values) {
  Json list = Json::array();
  for (const std::int64_t value : values) list.push_back(drawn(static_cast<double>(value)));
  return list;
}

std::vector<double> pooled(std::span<const double> values, std::size_t pool) {
  std::vector<double> most;
  for (std::size_t begin = 0; begin < values.size(); begin += pool)
    most.push_back(std::accumulate(
        values.begin() + static_cast<std::ptrdiff_t>(begin),
        values.begin() + static_cast<std::ptrdiff_t>(std::min(begin + pool, values.size())),
        std::numeric_limits<double>::quiet_NaN(), [](double a, double b) { return std::fmax(a, b); }));
  return most;
}

}  // namespace internal

}  // namespace evenkeel
