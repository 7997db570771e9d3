#include <algorithm>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/report/internal/degrees.h"
#include "evenkeel/report/internal/html_page.h"
#include "evenkeel/report/internal/numbers.h"
#include "evenkeel/report/internal/page.h"
#include "evenkeel/report/memory.h"

namespace evenkeel {

namespace {

using internal::Json;

constexpr std::size_t kMostLayouts = 12;

std::int64_t count_of_fitting(const LayoutsReport& report) {
  return std::ranges::count_if(report.layouts, [](const LayoutFit& layout) { return layout.fit.fits; });
}

std::string headline_of(const LayoutsReport& report) {
  return fmt::format("{}, {} of each: {} of {} layouts fit",
                     internal::counted(report.devices, "device", "devices"),
                     format_bytes(report.available_bytes), count_of_fitting(report), report.layouts.size());
}

}  // namespace

void require_fit(const LayoutsReport& report) {
  if (count_of_fitting(report) > 0) return;
  std::int64_t least = most_bytes;
  for (const LayoutFit& layout : report.layouts)
    least = std::min(least, layout.fit.tightest_stage().total_bytes());
  throw Infeasible(
      fmt::format("{}; the smallest takes {} of a device", headline_of(report), format_bytes(least)));
}

std::string to_json(const LayoutsReport& report) {
  Json layouts = Json::array();
  for (const LayoutFit& layout : report.layouts) {
    const StageFit& stage = layout.fit.tightest_stage();
    layouts.push_back({{"parallel", internal::json_of(layout.parallel)},
                       {"fits", layout.fit.fits},
                       {"static_total", stage.static_bytes},
                       {"active_total", stage.active_bytes},
                       {"chunks", stage.choice.chunks},
                       {"stage", stage.stage}});
  }
  return internal::line_of({{"devices", report.devices},
                            {"available", report.available_bytes},
                            {"fits", count_of_fitting(report) > 0},
                            {"layouts", std::move(layouts)}});
}

std::string to_text(const LayoutsReport& report) {
  internal::Page page;
  const std::size_t shown = std::min(report.layouts.size(), kMostLayouts);
  page.put("{}\n", headline_of(report));
  page.put("{} of them, best first: fewest chunks, then least tp x pp, then fewest bytes\n\n", shown);
  Table table({"--parallel", "static", "active", "together", "chunks", ""});
  for (const LayoutFit& layout : report.layouts.first(shown)) {
    const StageFit& stage = layout.fit.tightest_stage();
    table.add({to_text(layout.parallel), format_bytes(stage.static_bytes), format_bytes(stage.active_bytes),
               format_bytes(stage.total_bytes()), fmt::format("{}", stage.choice.chunks),
               layout.fit.fits ? "fits" : "does not fit"});
  }
  page.put(table);
  return std::move(page).text();
}

std::string to_html(const LayoutsReport& report, const PageOrigin& origin) {
  Json page = internal::page_of(
      fmt::format("Layouts of {}", internal::counted(report.devices, "device", "devices")), origin);
  Json rows = Json::array();
  for (const LayoutFit& layout : report.layouts) {
    const StageFit& stage = layout.fit.tightest_stage();
    rows.push_back({{"parallel", to_text(layout.parallel)},
                    {"fits", layout.fit.fits},
                    {"static", stage.static_bytes},
                    {"active", stage.active_bytes},
                    {"together", stage.total_bytes()},
                    {"chunks", stage.choice.chunks},
                    {"stage", stage.stage}});
  }
  using internal::column;
  page["sections"] = Json::array(
      {{{"kind", "table"},
        {"id", "layouts"},
        {"title", headline_of(report)},
        {"caption",
         "Best first: fewest chunks, then least tp x pp, then fewest bytes; bytes are "
         "those of the tightest stage."},
        {"columns", Json::array({column("parallel", "--parallel"), column("fits", "fits"),
                                 column("static", "static", "bytes"), column("active", "active", "bytes"),
                                 column("together", "together", "bytes"), column("chunks", "chunks", "count"),
                                 column("stage", "tightest stage")})},
        {"rows", std::move(rows)}}});
  return internal::html_page(page);
}

}  // namespace evenkeel
