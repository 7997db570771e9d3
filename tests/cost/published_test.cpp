// The time model compared with published times (tests/data/README.md): fitted on one half of them and judged
// on the other, then the other way round.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "evenkeel/cost/fit.h"
#include "tests/support/published_table.h"

namespace evenkeel::testing {
namespace {

using Row = PublishedRow;

template <class Time>
struct Halves {
  std::vector<Time> of[2];
};

struct Errors {
  double median = 0;
  double p90 = 0;
};

template <class Time>
Errors errors_of(const Machine& machine, const std::vector<Time>& times) {
  std::vector<double> errors;
  for (const Time& time : times)
    errors.push_back(std::abs(predicted_seconds(machine, time) / time.seconds - 1));
  std::ranges::sort(errors);
  return {errors[errors.size() / 2], errors[errors.size() * 9 / 10]};
}

// Judges each half with the machine fitted on the other half.
template <class Time, class Fit>
Errors worst_errors(const char* what, const Halves<Time>& halves, const Fit& fit) {
  Errors worst;
  for (const int judged : {0, 1}) {
    const Machine machine = fit(halves.of[1 - judged]);
    const Errors errors = errors_of(machine, halves.of[judged]);
    fmt::print("{:24} {:4} times, median error {:5.1f} %, 90th percentile {:5.1f} %\n", what,
               halves.of[judged].size(), 100 * errors.median, 100 * errors.p90);
    worst = {std::max(worst.median, errors.median), std::max(worst.p90, errors.p90)};
  }
  return worst;
}

// Rough numbers of such a device, from which the fits start.
Machine some_gpu() {
  return {.flops_per_second = 1e14,
          .inner_half = 100,
          .weight_bytes_per_second = 1e12,
          .overlap = 0.5,
          .products_seconds = 1e-5,
          .link_bytes_per_second = 1e11,
          .link_seconds = 1e-5,
          .nic_bytes_per_second = 1e10,
          .nic_seconds = 1e-5,
          .ramp_bytes = 1e6};
}

Machine products_fitted(const std::vector<ProductTime>& times) {
  return fit_products(some_gpu(), times);
}
Machine exchanges_fitted(const std::vector<ExchangeTime>& times) {
  return fit_exchanges(some_gpu(), times);
}

TEST(Published, ProductsOfShapesThatTheFitHasNotSeenArePredicted) {
  const std::vector<Row> rows = published_table("experts_h200_bf16.csv");
  std::set<std::string> shapes;
  const auto shape_of = [](const Row& row) {
    return row.at("hidden") + "x" + row.at("intermediate") + "x" + row.at("experts") + "x" + row.at("top_k");
  };
  for (const Row& row : rows)
    if (row.at("matrices") == "3") shapes.insert(shape_of(row));
  ASSERT_EQ(shapes.size(), 14u);
  Halves<ProductTime> halves;
  for (const Row& row : rows) {
    const auto shape = shapes.find(shape_of(row));
    if (shape == shapes.end()) continue;
    const auto at = std::distance(shapes.begin(), shape);
    halves.of[at % 2].push_back(
        {expert_work(std::stoi(row.at("hidden")), std::stoi(row.at("intermediate")), 3, 2),
         number(row, "experts"), number(row, "rows_per_expert"), 1e-3 * number(row, "ms")});
  }
  const Errors errors = worst_errors("products", halves, products_fitted);
  EXPECT_LE(errors.median, 0.08);
  EXPECT_LE(errors.p90, 0.20);
}

TEST(Published, AllToAllsInsideANodeArePredictedFromAMegabyteOn) {
  Halves<ExchangeTime> halves;
  int at = 0;
  for (const Row& row : published_table("all_to_all_h200_nccl.csv")) {
    const double gpus = number(row, "gpus"), bytes = 2 * number(row, "elements_half");
    if (bytes < 1e6) continue;
    halves.of[at++ % 2].push_back({{.within = bytes * (gpus - 1) / gpus}, 1e-6 * number(row, "us")});
  }
  ASSERT_GE(at, 24);
  EXPECT_LE(worst_errors("all-to-all", halves, exchanges_fitted).median, 0.15);
}

// The expected share of `all` ranks or nodes that a token's k experts reach if drawn evenly.
double share_reached(double all, double k) {
  return 1 - std::pow(1 - 1 / all, k);
}

// A token's row crosses the network once to each other node that it visits. There the node's links carry it
// to each further rank that needs it.
PortBytes spread(const Row& row, double row_bytes) {
  const double nodes = number(row, "nodes_of_8"), k = number(row, "top_k"), ranks = 8 * nodes;
  const double bytes = number(row, "tokens_per_rank") * row_bytes;
  return {.within = bytes * 7 / 8 * ranks * share_reached(ranks, k),
          .across = nodes > 1 ? bytes * (nodes - 1) * share_reached(nodes, k) : 0};
}

TEST(Published, DispatchAndCombineOnOneToFourNodesArePredicted) {
  const std::vector<Row> rows = published_table("dispatch_combine_h200_deepep.csv");
  std::set<int> counts;
  for (const Row& row : rows) counts.insert(std::stoi(row.at("tokens_per_rank")));
  Halves<ExchangeTime> halves;
  for (const Row& row : rows) {
    if (row.at("nodes_of_8") == "8") continue;
    const double hidden = number(row, "hidden");
    const auto at = std::distance(counts.begin(), counts.find(std::stoi(row.at("tokens_per_rank"))));
    // Dispatch is fp8 with one f32 scale per 128 numbers; combine is bf16.
    halves.of[at % 2].push_back({spread(row, hidden * (1 + 4.0 / 128)), 1e-6 * number(row, "dispatch_us")});
    halves.of[at % 2].push_back({spread(row, 2 * hidden), 1e-6 * number(row, "combine_us")});
  }
  ASSERT_GE(halves.of[0].size() + halves.of[1].size(), 700u);
  EXPECT_LE(worst_errors("dispatch and combine", halves, exchanges_fitted).median, 0.25);
}

}  // namespace
}  // namespace evenkeel::testing
