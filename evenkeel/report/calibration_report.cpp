// The costs that `evenkeel bench --calibrate` measured.
#include <fmt/format.h>

#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/page.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

std::string to_text(const CalibrationReport& report) {
  const CostModel& cost = report.calibration.cost;
  const MeasuredOn& on = report.calibration.on;
  internal::Page page;
  page.put("{}\n{} ranks on {} cores of {}\n\n", on.layer, on.ranks, on.cores, on.cpu);
  Table table({"products of many rows", fmt::format("{:.0f} GFLOP/s", 1e-9 * cost.flops_per_second)});
  table.add({"weights, where rows are few", fmt::format("{:.1f} GB/s", 1e-9 * cost.weight_bytes_per_second)});
  table.add({"hidden of the shorter of both", fmt::format("{:.0f} %", 100 * cost.overlap)});
  table.add({"weights from rank to rank", fmt::format("{:.1f} GB/s", 1e-9 * cost.link_bytes_per_second)});
  table.add({"one chunk more", fmt::format("{:.0f} us", 1e6 * cost.chunk_seconds)});
  page.put(table);
  page.put("written to {}\n", report.file);
  return std::move(page).text();
}

std::string to_json(const CalibrationReport& report) {
  const CostModel& cost = report.calibration.cost;
  const MeasuredOn& on = report.calibration.on;
  return internal::line_of(
      {{"output", report.file},
       {"flops_per_second", cost.flops_per_second},
       {"weight_bytes_per_second", cost.weight_bytes_per_second},
       {"overlap", cost.overlap},
       {"link_bytes_per_second", cost.link_bytes_per_second},
       {"chunk_seconds", cost.chunk_seconds},
       {"measured_on", {{"cpu", on.cpu}, {"cores", on.cores}, {"ranks", on.ranks}, {"layer", on.layer}}}});
}

}  // namespace evenkeel
