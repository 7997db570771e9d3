// The costs that `evenkeel bench --calibrate` measured.
#include <fmt/format.h>

#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/page.h"
#include "evenkeel/report/study_report.h"

namespace evenkeel {

std::string to_text(const CalibrationReport& report) {
  const Machine& machine = report.calibration.machine;
  const MeasuredOn& on = report.calibration.on;
  internal::Page page;
  page.put("{}\n{} ranks on {} cores of {}\n\n", on.layer, on.ranks, on.cores, on.cpu);
  Table table({"products of many rows", fmt::format("{:.0f} GFLOP/s", 1e-9 * machine.flops_per_second)});
  table.add({"half that rate at an inner dimension of", fmt::format("{:.0f}", machine.inner_half)});
  table.add({"weights, with few rows", fmt::format("{:.1f} GB/s", 1e-9 * machine.weight_bytes_per_second)});
  table.add({"overlap of products and weights", fmt::format("{:.0f} %", 100 * machine.overlap)});
  table.add({"from rank to rank", fmt::format("{:.1f} GB/s", 1e-9 * machine.link_bytes_per_second)});
  table.add({"a message's latency", fmt::format("{:.1f} us", 1e6 * machine.link_seconds)});
  table.add({"messages are half as fast far below", fmt::format("{:.0f} KiB", machine.ramp_bytes / 1024)});
  table.add({"one more chunk", fmt::format("{:.0f} us", 1e6 * machine.chunk_seconds)});
  page.put(table);
  page.put("written to {}\n", report.file);
  return std::move(page).text();
}

std::string to_json(const CalibrationReport& report) {
  const MeasuredOn& on = report.calibration.on;
  internal::Json json = {{"output", report.file}};
  for (const MachineNumber& number : machine_numbers())
    json[number.name] = report.calibration.machine.*number.value;
  json["measured_on"] = {{"cpu", on.cpu}, {"cores", on.cores}, {"ranks", on.ranks}, {"layer", on.layer}};
  return internal::line_of(json);
}

}  // namespace evenkeel
