// Seconds of products and links compared with the formulas, rank by rank; the fit compared with known
// machines.
#include "evenkeel/cost/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/cost/fit.h"
#include "tests/routing/message.h"

namespace evenkeel::testing {
namespace {

double uniform(std::mt19937_64& random) {
  return std::uniform_real_distribution<double>(0, 1)(random);
}

// A machine in which any of the numbers may dominate.
Machine random_machine(std::mt19937_64& random) {
  return {.flops_per_second = 1e14 * (1 + uniform(random)),
          .inner_half = 100 + 400 * uniform(random),
          .weight_bytes_per_second = 1e12 * (1 + uniform(random)),
          .overlap = 0.2 + 0.6 * uniform(random),
          .products_seconds = 1e-5 * (1 + uniform(random)),
          .link_bytes_per_second = 1e11 * (1 + uniform(random)),
          .link_seconds = 1e-5 * (1 + uniform(random)),
          .nic_bytes_per_second = 1e10 * (1 + uniform(random)),
          .nic_seconds = 2e-5 * (1 + uniform(random)),
          .ranks_per_nic = static_cast<double>(1 + random() % 3),
          .ramp_bytes = 1e6 * (1 + uniform(random))};
}

TEST(Products, WaitForArithmeticOrForWeightsAndPartlyForBoth) {
  // Three 10 x 20 matrices with two bytes per number; their products give 20, 20 and 10 numbers per row.
  const ExpertWork work = expert_work(10, 20, 3, 2);
  const Machine machine{
      .flops_per_second = 1e3, .inner_half = 4, .weight_bytes_per_second = 600, .overlap = 0.75};
  const double row = 2 * (600 + 4 * 50) / 1e3, reading = 1200.0 / 600;
  EXPECT_DOUBLE_EQ(row_seconds(machine, work), row);
  EXPECT_DOUBLE_EQ(expert_seconds(machine, work, 1), reading + 0.25 * row);
  EXPECT_DOUBLE_EQ(expert_seconds(machine, work, 5), 5 * row + 0.25 * reading);
  EXPECT_DOUBLE_EQ(expert_seconds(machine, work, 0.5), reading / 2 + 0.25 * row / 2);
  EXPECT_DOUBLE_EQ(expert_work(10, 20, 2, 2).outputs, 30);
}

// Seconds that a port takes to send `bytes` to one peer; peers are served one after the other.
double port_seconds(const Machine& machine, double rate, double latency, double bytes) {
  return bytes > 0 ? latency + (bytes + machine.ramp_bytes * bytes / (bytes + machine.ramp_bytes)) / rate : 0;
}

TEST(Exchange, TakesAsLongAsItsBusiestPort) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const Machine machine = random_machine(random);
    const int nodes = 1 + static_cast<int>(random() % 3), in_node = 1 + static_cast<int>(random() % 5);
    const int ranks = nodes * in_node, sharing = static_cast<int>(machine.ranks_per_nic);
    std::vector<double> bytes;
    for (int i = 0; i < ranks * ranks; ++i) bytes.push_back(random() % 3 == 0 ? 0 : 1e7 * uniform(random));
    const auto sum = [&](auto&& counts) {
      double all = 0;
      for (int from = 0; from < ranks; ++from)
        for (int to = 0; to < ranks; ++to)
          if (from != to && counts(from, to)) all += bytes[static_cast<std::size_t>(from * ranks + to)];
      return all;
    };
    const auto node = [&](int rank) { return rank / in_node; };
    const auto nic = [&](int rank) { return node(rank) * 100 + rank % in_node / sharing; };
    double wanted = 0;
    PortBytes most;
    for (int rank = 0; rank < ranks; ++rank)
      for (const bool sends : {true, false}) {
        const auto end = [&](int from, int to) { return sends ? from : to; };
        const double within =
            sum([&](int from, int to) { return end(from, to) == rank && node(from) == node(to); });
        const double across =
            sum([&](int from, int to) { return nic(end(from, to)) == nic(rank) && node(from) != node(to); });
        most = {std::max(most.within, within), std::max(most.across, across)};
        wanted = std::max({wanted,
                           port_seconds(machine, machine.link_bytes_per_second, machine.link_seconds, within),
                           port_seconds(machine, machine.nic_bytes_per_second, machine.nic_seconds, across)});
      }
    const Topology topology =
        Topology::uniform(nodes, in_node, {machine.link_bytes_per_second * 1e-9, machine.link_seconds * 1e6},
                          {machine.nic_bytes_per_second * 1e-9, machine.nic_seconds * 1e6});
    ASSERT_NEAR(exchange_seconds(machine, topology, bytes), wanted, 1e-9 * wanted) << "seed " << seed;
    ASSERT_NEAR(exchange_seconds(machine, most), wanted, 1e-9 * wanted) << "seed " << seed;
  }
}

TEST(Exchange, HasTheLinksOfATopologyThatDescribesThemPairByPair) {
  // Rank 0 sends 4 GB over 2 GB/s and 3 GB over 1 GB/s: its port is busy for 2 + 3 s after 1 s of latency.
  const Topology topology(
      {.node_of_rank = {0, 0, 0}, .links = {{}, {2, 1e6}, {1, 5e5}, {2, 0}, {}, {2, 0}, {2, 0}, {2, 0}, {}}});
  const std::vector<double> bytes{9, 4e9, 3e9, 1, 9, 1, 1, 1, 9};
  EXPECT_DOUBLE_EQ(exchange_seconds(Machine{}, topology, bytes), 6);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              exchange_seconds(Machine{}, topology, {bytes.data(), 8});
            }),
            "bytes: has 8 numbers for 3 ranks; allowed: 3 x 3");
}

TEST(Transfer, OfNothingTakesNoTime) {
  const Machine machine{.link_bytes_per_second = 100, .link_seconds = 2, .ramp_bytes = 50};
  EXPECT_EQ(transfer_seconds(machine, 0), 0);
  EXPECT_DOUBLE_EQ(transfer_seconds(machine, 50), 2 + (50 + 25) / 100.0);
}

// Multiplies every number by a random factor between 1/e and e, so that the fit must find each of them.
Machine disturbed(Machine machine, std::mt19937_64& random) {
  for (const MachineNumber& number : machine_numbers())
    if (!number.is_whole)
      machine.*number.value =
          std::min(number.most, machine.*number.value * std::exp(2 * uniform(random) - 1));
  return machine;
}

TEST(Fit, FindsTheMachineThatTheTimesWereMadeBy) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const Machine made = random_machine(random);
    std::vector<ProductTime> products;
    for (const int hidden : {512, 4096})
      for (const int intermediate : {256, 2048})
        for (const double rows : {1, 30, 100, 300, 3000}) {
          products.push_back({expert_work(hidden, intermediate, 3, 2), 16, rows});
          products.back().seconds = predicted_seconds(made, products.back());
        }
    std::vector<ExchangeTime> exchanges;
    for (const double bytes : {1e3, 1e5, 1e6, 1e7, 1e9})
      for (const double across : {0.0, 1.0}) {
        exchanges.push_back({{bytes * (1 - across), bytes * across}});
        exchanges.back().seconds = predicted_seconds(made, exchanges.back());
      }
    const Machine found = fit_exchanges(fit_products(disturbed(made, random), products), exchanges);
    for (const ProductTime& time : products)
      ASSERT_NEAR(predicted_seconds(found, time), time.seconds, 0.01 * time.seconds) << "seed " << seed;
    for (const ExchangeTime& time : exchanges)
      ASSERT_NEAR(predicted_seconds(found, time), time.seconds, 0.01 * time.seconds) << "seed " << seed;
  }
}

TEST(Fit, LeavesWhatTimesDoNotShow) {
  const Machine start{.nic_bytes_per_second = 7, .nic_seconds = 3, .ramp_bytes = 0};
  const std::vector<ExchangeTime> times{{{1e6, 0}, 1e-3}};
  const Machine found = fit_exchanges(start, times);
  EXPECT_EQ(found.nic_bytes_per_second, 7);
  EXPECT_EQ(found.nic_seconds, 3);
  EXPECT_EQ(found.ramp_bytes, 0);
  EXPECT_NEAR(found.link_bytes_per_second, 1e9, 1e4);
}

TEST(Fit, RefusesTimesThatAreNone) {
  for (const double seconds : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(fit_products({}, std::vector<ProductTime>{{expert_work(1, 1, 3, 2), 1, 1, seconds}}),
                 InvalidArgument);
}

TEST(Machines, OfDevicesReachHalfOfWhatDatasheetsSay) {
  const Machine h200 = device_machine(device_preset("h200"));
  EXPECT_DOUBLE_EQ(h200.flops_per_second, 494.75e12);
  EXPECT_DOUBLE_EQ(h200.weight_bytes_per_second, 2.4e12);
  EXPECT_DOUBLE_EQ(h200.link_bytes_per_second, 225e9);
  EXPECT_DOUBLE_EQ(h200.nic_bytes_per_second, 225e9);
  for (const DevicePreset& device : device_presets()) require_machine(device_machine(device), "cost");
}

TEST(Machines, AreRefusedWhereANumberIsOutOfItsRange) {
  const auto message = [](const Machine& machine) {
    return message_of<InvalidArgument>([&] { require_machine(machine, "cost"); });
  };
  EXPECT_EQ(message({.flops_per_second = 0}), "cost: flops_per_second is 0; allowed: 1..1e+30");
  EXPECT_EQ(message({.ranks_per_nic = 1.5}),
            "cost: ranks_per_nic is 1.5; allowed: a whole number in 1..1e+06");
  for (const MachineNumber& number : machine_numbers())
    for (const double wrong : {-1.0, 2e30, std::numeric_limits<double>::quiet_NaN()}) {
      Machine machine;
      machine.*number.value = wrong;
      EXPECT_THROW(require_machine(machine, "cost"), InvalidArgument) << number.name;
    }
  require_machine({}, "cost");
}

}  // namespace
}  // namespace evenkeel::testing
