#include "evenkeel/routing/trace.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

// ids[t, l, j] = (7 t + 3 l + 5 j) mod experts, for 3 layers and k = 2.
std::vector<std::int32_t> formula_ids(int tokens, int experts) {
  std::vector<std::int32_t> ids;
  for (int t = 0; t < tokens; ++t)
    for (int l = 0; l < 3; ++l)
      for (int j = 0; j < 2; ++j) ids.push_back((7 * t + 3 * l + 5 * j) % experts);
  return ids;
}

MemoryTrace trace_of(int tokens, int experts = 13) {
  return MemoryTrace({.num_layers = 3, .top_k = 2, .num_experts = experts}, formula_ids(tokens, experts));
}

TEST(Trace, BatchesOfAnySizeGiveEveryTokenOnce) {
  const auto expected = formula_ids(23, 13);
  for (std::int64_t size : {1, 2, 5, 22, 23, 24, 0}) {
    MemoryTrace trace = trace_of(23);
    std::vector<std::int32_t> seen;
    std::int64_t next_token = 0;
    for (TraceBatches batches(trace, size); batches.next();) {
      EXPECT_EQ(batches.range().begin, next_token);
      next_token = batches.range().end;
      seen.insert(seen.end(), batches.ids().begin(), batches.ids().end());
    }
    EXPECT_EQ(next_token, 23) << size;
    EXPECT_EQ(seen, expected) << size;
  }
}

TEST(Trace, ALayerOfAWindowIsWhatTheWholeTraceHasThere) {
  std::vector<float> weights(23 * 6);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  MemoryTrace trace({.num_layers = 3, .top_k = 2, .num_experts = 13}, formula_ids(23, 13), weights);
  for (int layer = 0; layer < 3; ++layer) {
    const LayerRouting routing = trace.read_layer(LayerId(layer), {4, 19});
    ASSERT_EQ(routing.num_tokens(), 15);
    for (int t = 0; t < 15; ++t) {
      for (int j = 0; j < 2; ++j) {
        const auto at = static_cast<std::size_t>(t * 2 + j);
        EXPECT_EQ(routing.ids[at], (7 * (t + 4) + 3 * layer + 5 * j) % 13);
        EXPECT_EQ(routing.weights[at], static_cast<float>(((t + 4) * 3 + layer) * 2 + j));
      }
    }
  }
}

TEST(Trace, AnEmptyWindowIsEmpty) {
  MemoryTrace trace = trace_of(5);
  EXPECT_EQ(trace.read_layer(LayerId(2), {5, 5}).num_tokens(), 0);
  TraceBatches batches(trace, TokenRange{3, 3});
  EXPECT_FALSE(batches.next());
}

TEST(Trace, WithoutANumberOfExpertsHasTheLargestIdPlusOne) {
  MemoryTrace trace({.num_layers = 1, .top_k = 2}, {3, no_expert, 0, 40});
  EXPECT_EQ(trace.info().num_experts, 41);
  MemoryTrace nobody({.num_layers = 1, .top_k = 2}, {no_expert, no_expert});
  EXPECT_EQ(nobody.info().num_experts, 1);
}

TEST(Trace, AnIdOutsideNamesTokenAndLayerAndTheLikelyMistake) {
  std::vector<std::int32_t> ids(18206 * 5, 0);
  ids[18205 * 5 + 4] = 73;
  MemoryTrace trace({.num_layers = 5, .top_k = 1, .num_experts = 64}, ids, {}, {}, "trace.safetensors");
  EXPECT_EQ(message_of<ParseError>([&] {
              trace.read_layer(LayerId(0), {0, 18206});
            }),
            "trace.safetensors: topk_ids: expert id 73 at token 18205, layer 4 is outside 0..63; was "
            "num_experts meant "
            "to be 128?");
}

TEST(Trace, AnIdBelowMinusOneIsRefused) {
  MemoryTrace trace({.num_layers = 1, .top_k = 2, .num_experts = 4}, {0, 1, 2, -2}, {}, {}, "t");
  EXPECT_EQ(message_of<ParseError>([&] {
              trace.read_layer(LayerId(0), {0, 2});
            }),
            "t: topk_ids: expert id -2 at token 1, layer 0 is outside 0..3; -1 means no expert");
}

TEST(Trace, AnIdAboveEveryLimitIsRefusedEvenWhereNobodySaidHowManyExperts) {
  EXPECT_EQ(message_of<ParseError>([&] { MemoryTrace({.num_layers = 1, .top_k = 1}, {70000}, {}, {}, "t"); }),
            "t: topk_ids: expert id 70000 at token 0, layer 0 is outside 0..65535");
}

TEST(Trace, AWeightThatIsNotANumberNamesItsPlace) {
  MemoryTrace trace({.num_layers = 2, .top_k = 1, .num_experts = 4}, {0, 1, 2, 3},
                    {1, 1, 1, std::numeric_limits<float>::quiet_NaN()}, {}, "t");
  EXPECT_EQ(message_of<ParseError>([&] {
              trace.read_layer(LayerId(0), {0, 2});
            }),
            "t: topk_weights: weight nan at token 1, layer 1 is not finite");
}

TEST(Trace, WindowsLayersAndBuffersThatDoNotExistAreInvalid) {
  MemoryTrace trace = trace_of(5);
  std::vector<std::int32_t> ids(6);
  std::vector<float> weights(6);
  EXPECT_THROW(trace.read_ids({4, 6}, ids), InvalidArgument);
  EXPECT_THROW(trace.read_ids({-1, 0}, ids), InvalidArgument);
  EXPECT_THROW(trace.read_ids({3, 2}, ids), InvalidArgument);
  EXPECT_THROW(trace.read_ids({0, 2}, ids), InvalidArgument);
  EXPECT_THROW(trace.read_weights({0, 1}, weights), InvalidArgument);
  EXPECT_THROW(trace.read_layer(LayerId(3), {0, 1}), InvalidArgument);
  EXPECT_THROW(trace.read_layer(LayerId(0), {0, 6}), InvalidArgument);
  EXPECT_THROW(trace.set_num_experts(0), InvalidArgument);
  EXPECT_THROW(trace.set_num_experts(65537), InvalidArgument);
}

TEST(Trace, SequencesMustCoverItInOrder) {
  const auto with = [](std::vector<std::int64_t> offsets) {
    return message_of<ParseError>([&] {
      MemoryTrace({.num_layers = 1, .top_k = 1, .num_experts = 2}, {0, 1, 0}, {}, std::move(offsets), "t");
    });
  };
  EXPECT_EQ(with({1, 3}), "t: sequence_offsets: begin at 1, not at 0");
  EXPECT_EQ(with({0, 2, 1, 3}), "t: sequence_offsets: offset 2 is 1, below the one before it, 2");
  EXPECT_EQ(with({0, 4}), "t: sequence_offsets: end at 4 in a trace of 3 tokens");
}

TEST(Trace, ShapesThatCannotBeAreRefused) {
  EXPECT_THROW(MemoryTrace({.num_layers = 0, .top_k = 1}, {}), ParseError);
  EXPECT_THROW(MemoryTrace({.num_layers = 1 << 11, .top_k = 1 << 11, .num_experts = 1}, {}), ParseError);
  EXPECT_THROW(MemoryTrace({.num_layers = 2, .top_k = 2}, {0, 1, 2}), InvalidArgument);
  EXPECT_THROW(MemoryTrace({.num_layers = 1, .top_k = 2}, {0, 1}, {0.5F}), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel
