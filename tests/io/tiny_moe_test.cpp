// The data shipped with the project matches its README.
#include <cmath>

#include "evenkeel/io/trace_file.h"
#include "evenkeel/io/trained_layer.h"
#include "evenkeel/routing/imbalance.h"
#include "evenkeel/routing/profile.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

std::string tiny_moe(const char* name) {
  return repository_file("data/tiny-moe/") + name;
}

double rounded(double value) {
  return std::round(value * 100) / 100;
}

// Compares with the rows "all" of the README's tables: max/mean over experts and over 8 ranks, by layer.
void expect_table(const char* file, const std::vector<double>& by_expert,
                  const std::vector<double>& by_rank) {
  const RoutingProfile profile = profile_trace(*open_trace(tiny_moe(file)), {.transitions = false});
  ASSERT_EQ(profile.num_layers(), 8);
  ASSERT_EQ(profile.num_experts(), 32);
  for (std::size_t l = 0; l < 8; ++l) {
    const auto loads = profile.loads(LayerId(l));
    std::vector<std::int64_t> ranks(8);
    for (std::size_t e = 0; e < 32; ++e) ranks[e / 4] += loads[e];
    EXPECT_DOUBLE_EQ(rounded(imbalance(loads).max_over_mean), by_expert[l]) << "layer " << l;
    EXPECT_DOUBLE_EQ(rounded(imbalance(ranks).max_over_mean), by_rank[l]) << "layer " << l;
  }
}

TEST(TinyMoe, TracesHaveTheImbalanceThatTheReadmeStates) {
  expect_table("routing_step1563.npz", {2.22, 2.21, 1.89, 1.41, 1.53, 1.91, 1.64, 2.36},
               {1.24, 1.50, 1.27, 1.15, 1.15, 1.20, 1.13, 1.30});
  expect_table("routing_step50.npz", {2.41, 3.01, 4.76, 4.24, 4.34, 4.89, 4.25, 5.43},
               {1.55, 1.29, 1.86, 1.45, 1.61, 1.70, 1.50, 1.90});
}

TEST(TinyMoe, TransitionsOfTheTraceAddUpToSixteenATokenAndLayer) {
  const auto trace = open_trace(tiny_moe("routing_step1563.npz"));
  EXPECT_EQ(trace->info().num_tokens, 40960);
  EXPECT_EQ(trace->info().sequence_offsets.size(), 161U);
  const RoutingProfile profile = profile_trace(*trace);
  for (int l = 0; l < 7; ++l) {
    std::int64_t total = 0;
    for (std::int64_t pairs : profile.transitions(LayerId(l))) total += pairs;
    EXPECT_EQ(total, 40960 * 16);
  }
}

TEST(TinyMoe, GateWeightsOfTheTraceAddUpToOne) {
  const auto trace = open_trace(tiny_moe("routing_step1563.npz"));
  const LayerRouting routing = trace->read_layer(LayerId(4), {1000, 2000});
  ASSERT_EQ(routing.weights.size(), 4000U);
  for (std::size_t t = 0; t < 1000; ++t) {
    float sum = 0;
    for (std::size_t j = 0; j < 4; ++j) sum += routing.weights[t * 4 + j];
    EXPECT_NEAR(sum, 1, 2e-3);
  }
}

// output = sum over the chosen experts of weight * down (silu(gate x) * (up x)), in fp64.
TEST(TinyMoe, TheTrainedLayerGivesItsRecordedOutput) {
  const TrainedLayer layer = read_trained_layer(tiny_moe("layer.safetensors"));
  ASSERT_EQ(layer.num_experts, 32);
  ASSERT_EQ(layer.hidden, 256);
  ASSERT_EQ(layer.intermediate, 160);
  ASSERT_EQ(layer.top_k, 4);
  ASSERT_EQ(layer.num_tokens, 1024);
  const auto dot = [](const float* a, const auto* b, std::size_t n) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
  };
  for (std::size_t t : {0U, 500U, 1023U}) {
    std::vector<double> output(256);
    for (std::size_t j = 0; j < 4; ++j) {
      const auto e = static_cast<std::size_t>(layer.topk_ids[t * 4 + j]);
      std::vector<double> inner(160);
      for (std::size_t i = 0; i < 160; ++i) {
        const double gate = dot(&layer.gate_up[(e * 320 + i) * 256], &layer.input[t * 256], 256);
        const double up = dot(&layer.gate_up[(e * 320 + 160 + i) * 256], &layer.input[t * 256], 256);
        inner[i] = gate / (1 + std::exp(-gate)) * up;
      }
      for (std::size_t h = 0; h < 256; ++h)
        output[h] += layer.topk_weights[t * 4 + j] * dot(&layer.down[(e * 256 + h) * 160], inner.data(), 160);
    }
    for (std::size_t h = 0; h < 256; ++h)
      EXPECT_NEAR(output[h], layer.output[t * 256 + h], 1e-6) << t << ", " << h;
  }
}

TEST(TinyMoe, ATraceIsNoTrainedLayer) {
  EXPECT_EQ(message_of<ParseError>([] { read_trained_layer(tiny_moe("routing_step50.npz")); }),
            tiny_moe("routing_step50.npz") +
                ": experts.down.weight: no such array; the file has topk_ids, sequence_offsets");
}

}  // namespace
}  // namespace evenkeel
