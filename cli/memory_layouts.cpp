#include "cli/memory_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/memory_report.h"
#include "cli/output.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_rows_shown = 12;

std::int64_t count_of_fitting(const LayoutsReport& report) {
  return std::ranges::count_if(report.layouts, [](const LayoutFit& layout) { return layout.fit.fits; });
}

std::string verdict(const LayoutsReport& report) {
  return fmt::format("{} of {}: {} of {} layouts fit", counted(report.devices, "device", "devices"),
                     format_bytes(report.available_bytes), count_of_fitting(report), report.layouts.size());
}

}  // namespace

void require_fit(const LayoutsReport& report) {
  if (count_of_fitting(report) > 0) return;
  std::int64_t least = most_bytes;
  for (const LayoutFit& layout : report.layouts)
    least = std::min(least, layout.fit.tightest_stage().total_bytes());
  throw Infeasible(
      fmt::format("{}; the smallest takes {} of a device", verdict(report), format_bytes(least)));
}

void print_json(const LayoutsReport& report) {
  Json layouts = Json::array();
  for (const LayoutFit& layout : report.layouts) {
    const StageFit& stage = layout.fit.tightest_stage();
    layouts.push_back({{"parallel", json_of_degrees(layout.parallel)},
                       {"fits", layout.fit.fits},
                       {"static_total", stage.static_bytes},
                       {"active_total", stage.active_bytes},
                       {"chunks", stage.choice.chunks},
                       {"stage", stage.stage}});
  }
  print_object(Json{{"devices", report.devices},
                    {"available", report.available_bytes},
                    {"fits", count_of_fitting(report) > 0},
                    {"layouts", std::move(layouts)}});
}

void print_table(const LayoutsReport& report) {
  put("{}\n", verdict(report));
  const std::size_t shown = std::min(report.layouts.size(), most_rows_shown);
  put("{} of them, best first: fewest chunks, then least tp x pp, then fewest bytes\n\n", shown);
  Table table({"--parallel", "static", "active", "together", "chunks", ""});
  for (const LayoutFit& layout : report.layouts.first(shown)) {
    const StageFit& stage = layout.fit.tightest_stage();
    table.add({degrees_text(layout.parallel), format_bytes(stage.static_bytes),
               format_bytes(stage.active_bytes), format_bytes(stage.total_bytes()),
               fmt::format("{}", stage.choice.chunks), layout.fit.fits ? "fits" : "does not fit"});
  }
  put("{}", table.text());
}

}  // namespace evenkeel::cli
