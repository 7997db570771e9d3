#include "cli/bench_overlap_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/bench_report.h"
#include "cli/options.h"
#include "cli/output.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string waited(double milliseconds) {
  return fmt::format("{:.2f} ms", milliseconds);
}

double wall_ratio(const OverlapRow& row) {
  return row.two().wall_ms / row.one().wall_ms;
}

Json in_flight_json(const CandidateFigures& of) {
  return {{"wait_ms", of.wait_ms}, {"least_wait_ms", of.least_wait_ms},
          {"wall_ms", of.wall_ms}, {"critical_ms", of.critical_ms},
          {"chunks", of.chunks},   {"peak_bytes", of.peak_bytes}};
}

}  // namespace

void print_overlap(const OverlapSetup& setup, const std::vector<OverlapRow>& rows) {
  put("{}\n{} tokens a rank, {} rounds, {} chunks, {}\n\n", layer_of(setup.bench), setup.bench.tokens,
      setup.bench.pairs, setup.chunks, name_of(setup.planner.kind));
  Table table({"scenario", "held up, one", "two", "hidden", "waiting, one", "two", "wall clock, one",
               "two / one", "peak, one", "two"});
  for (const OverlapRow& row : rows)
    table.add({row.scenario, waited(row.one().least_wait_ms), waited(row.two().least_wait_ms),
               fmt::format("{:.0f} %", 100 * row.hidden()), waited(row.one().wait_ms),
               waited(row.two().wait_ms), waited(row.one().wall_ms), fmt::format("{:.3f}", wall_ratio(row)),
               format_bytes(row.one().worst_peak_bytes()), format_bytes(row.two().worst_peak_bytes())});
  put("{}\n  one, two: chunks in flight, everything computed again in backward; waiting: for peers in a "
      "step's\n"
      "  counts of chunks, dispatch and combine, by the clock less the CPU time of copying, the mean of the\n"
      "  ranks; held up: of the rank that waits least; all medians over rounds\n",
      table.text());
}

void print_overlap_json(const OverlapSetup& setup, const std::vector<OverlapRow>& rows) {
  Json list = Json::array();
  for (const OverlapRow& row : rows)
    list.push_back({{"scenario", row.scenario},
                    {"hidden", row.hidden()},
                    {"wall_ratio", wall_ratio(row)},
                    {"one", in_flight_json(row.one())},
                    {"two", in_flight_json(row.two())}});
  const Json json = {{"ranks", setup.bench.ranks},     {"tokens_per_rank", setup.bench.tokens},
                     {"layer", layer_of(setup.bench)}, {"pairs", setup.bench.pairs},
                     {"chunks", setup.chunks},         {"planner", name_of(setup.planner.kind)},
                     {"rows", std::move(list)}};
  print_object(json);
}

}  // namespace evenkeel::cli
