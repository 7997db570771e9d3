#include "evenkeel/report/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/report/internal/compare_json.h"
#include "evenkeel/report/internal/html_page.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/internal/page.h"

namespace evenkeel {

namespace {

using internal::fixed;
using internal::Json;
using internal::or_null;
using internal::Page;

constexpr std::size_t kMostColumns = 8;

std::string cell(const MethodSummary* sum) {
  if (sum == nullptr || !sum->speedup) return "-";
  const bool pays = sum->answer == MethodSummary::Answer::pays;
  return fixed(*sum->speedup, 2) + (pays ? "x" : "");
}

// A table of all values of the sweep, with the columns from `first` on.
Table table_of(const Sweep& sweep, std::size_t first) {
  const std::size_t end = std::min(first + kMostColumns, sweep.points.size());
  std::vector<std::string> head = {sweep.over};
  for (std::size_t i = first; i < end; ++i) head.push_back(sweep.points[i].value);
  Table table(std::move(head));
  if (sweep.points.front().compared.comparison.has_seconds) {
    std::vector<std::string> plain = {"ep, ms"};
    for (std::size_t i = first; i < end; ++i)
      plain.push_back(
          fmt::format("{:.4g}", sweep.points[i].compared.summaries.front().seconds->median * 1e3));
    table.add(std::move(plain));
  }
  for (const SweptMethod& method : sweep.methods) {
    std::vector<std::string> row = {method.name};
    for (std::size_t i = first; i < end; ++i)
      row.push_back(cell(sweep.points[i].compared.summary_of(method.name)));
    table.add(std::move(row));
  }
  return table;
}

bool is_number(const SweepPoint& point) {
  return point.value.find_first_not_of("0123456789.") == std::string::npos;
}

// The point's value as a number. If any value of the sweep is not a number, the point's index.
Json x_of(const Sweep& sweep, std::size_t point) {
  if (!std::ranges::all_of(sweep.points, is_number)) return point + 1;
  return std::stod(sweep.points[point].value);
}

Json curve_of(const Sweep& sweep, const char* id, const char* title, const char* unit, auto figure) {
  Json series = Json::array();
  const auto add = [&](const std::string& name) {
    Json points = Json::array();
    for (std::size_t i = 0; i < sweep.points.size(); ++i)
      if (const MethodSummary* sum = sweep.points[i].compared.summary_of(name))
        if (const auto value = figure(*sum)) points.push_back({x_of(sweep, i), internal::drawn(*value)});
    if (!points.empty()) series.push_back({{"name", name}, {"points", std::move(points)}});
  };
  add("ep");
  for (const SweptMethod& method : sweep.methods) add(method.name);
  return {{"kind", "curves"},
          {"id", id},
          {"title", title},
          {"x",
           {{"label", sweep.over},
            {"log", std::ranges::none_of(sweep.points,
                                         [](const SweepPoint& point) { return point.value == "0"; })}}},
          {"y", {{"label", title}, {"unit", unit}, {"zero", true}}},
          {"panels", Json::array({{{"name", ""}, {"series", std::move(series)}}})}};
}

}  // namespace

std::string to_text(const Sweep& sweep) {
  Page page;
  page.put("speed-up over plain EP; x where it pays\n\n");
  for (std::size_t first = 0; first < sweep.points.size(); first += kMostColumns) {
    page.put(table_of(sweep, first));
    page.put("\n");
  }
  for (const SweptMethod& method : sweep.methods) page.put("{}: {}\n", method.name, method.sentence);
  if (!sweep.bottleneck.empty()) page.put("\n{}\n", sweep.bottleneck);
  return std::move(page).text();
}

std::string to_json(const Sweep& sweep) {
  Json values = Json::array(), comparisons = Json::array(), methods = Json::array();
  for (const SweepPoint& point : sweep.points) {
    values.push_back(point.value);
    comparisons.push_back(internal::json_of(point.compared));
  }
  for (const SweptMethod& method : sweep.methods) {
    Json speedup = Json::array(), level = Json::array(), step_ms = Json::array(), answers = Json::array();
    for (const SweepPoint& point : sweep.points) {
      const MethodSummary* const sum = point.compared.summary_of(method.name);
      speedup.push_back(sum ? or_null(sum->speedup) : Json(nullptr));
      level.push_back(sum ? Json(sum->max_over_mean.median) : Json(nullptr));
      step_ms.push_back(sum && sum->seconds ? Json(sum->seconds->median * 1e3) : Json(nullptr));
      answers.push_back(sum ? Json(name_of(sum->answer)) : Json(nullptr));
    }
    methods.push_back({{"name", method.name},
                       {"speedup", std::move(speedup)},
                       {"max_over_mean", std::move(level)},
                       {"step_ms", std::move(step_ms)},
                       {"answers", std::move(answers)},
                       {"pays_from", or_null(method.pays_from)},
                       {"pays_until", or_null(method.pays_until)},
                       {"stops_at", or_null(method.stops_at)},
                       {"sentence", method.sentence}});
  }
  return internal::line_of({{"over", sweep.over},
                            {"values", std::move(values)},
                            {"bottleneck", sweep.bottleneck.empty() ? Json(nullptr) : Json(sweep.bottleneck)},
                            {"methods", std::move(methods)},
                            {"comparisons", std::move(comparisons)}});
}

std::string to_html(const Sweep& sweep, const PageOrigin& origin) {
  const ComparedRecordings& first = sweep.points.front().compared;
  Json page = internal::page_of(fmt::format("Methods over {}", sweep.over), origin);
  for (const std::string& note : first.notes) page["notes"].push_back(note);
  Json sentences = Json::array();
  for (const SweptMethod& method : sweep.methods)
    sentences.push_back(fmt::format("{}: {}", method.name, method.sentence));
  if (!sweep.bottleneck.empty()) sentences.push_back(sweep.bottleneck);
  Json& sections = page["sections"];
  sections = Json::array(
      {{{"kind", "notes"}, {"id", "verdict"}, {"title", "How far each pays"}, {"paragraphs", sentences}}});
  sections.push_back(curve_of(sweep, "speedup", "speed-up over plain EP", "ratio",
                              [](const MethodSummary& sum) { return sum.speedup; }));
  sections.push_back(
      curve_of(sweep, "level", "max/mean load of a median step", "ratio",
               [](const MethodSummary& sum) { return std::optional(sum.max_over_mean.median); }));
  if (first.comparison.has_seconds)
    sections.push_back(
        curve_of(sweep, "ms", "milliseconds of a median step", "ms", [](const MethodSummary& sum) {
          return sum.seconds ? std::optional(sum.seconds->median * 1e3) : std::nullopt;
        }));
  return internal::html_page(page);
}

}  // namespace evenkeel
