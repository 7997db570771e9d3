// The layout search, compared with a search that evaluates every combination of degrees.
#include "evenkeel/training_memory/layout_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"
#include "tests/training_memory/support.h"

namespace evenkeel {
namespace {

DeviceMemory device_of(double gigabytes_each) {
  return {.available_bytes = gigabytes(gigabytes_each)};
}

using Degrees = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
Degrees degrees(const Parallelism& parallel) {
  return {parallel.tensor, parallel.pipeline, parallel.expert, parallel.data};
}

TEST(RankLayouts, FindsEveryLayoutThatTheModelAcceptsAndSaysRightlyWhetherItFits) {
  const ModelDescription model = model_named("qwen3-30b-a3b");  // 48 layers, 32 heads, 128 experts
  const MemoryModel memory(model, {});
  for (const std::int64_t devices : {1, 6, 32, 56}) {
    std::map<Degrees, bool> expected;
    for (const std::int64_t tensor : {1, 2, 4, 8})
      for (std::int64_t pipeline = 1; pipeline <= devices; ++pipeline)
        for (const std::int64_t expert : {1, 2, 4, 8, 16, 32, 64, 128}) {
          if (devices % (tensor * pipeline) != 0) continue;
          const Parallelism parallel{
              .tensor = tensor, .pipeline = pipeline, .expert = expert, .data = devices / tensor / pipeline};
          try {
            const MemoryModel asked(model, {.parallel = parallel});
            expected[degrees(parallel)] = fit(asked, std::nullopt, device_of(72)).fits;
          } catch (const InvalidArgument&) {
          }
        }
    std::map<Degrees, bool> found;
    for (const LayoutFit& layout : rank_layouts(memory, devices, std::nullopt, device_of(72))) {
      EXPECT_EQ(layout.parallel.devices(), devices);
      EXPECT_TRUE(found.emplace(degrees(layout.parallel), layout.fit.fits).second);
    }
    EXPECT_EQ(found, expected) << devices;
  }
}

TEST(RankLayouts, ThoseThatFitComeFirstThenFewChunksThenLittleTensorAndPipelineParallelism) {
  const MemoryModel memory(model_named("qwen3-30b-a3b"), {});
  const auto layouts = rank_layouts(memory, 32, std::nullopt, device_of(40));
  ASSERT_GT(layouts.size(), 20U);
  EXPECT_TRUE(layouts.front().fit.fits);
  EXPECT_FALSE(layouts.back().fit.fits);
  for (std::size_t i = 1; i < layouts.size(); ++i) {
    const LayoutFit &before = layouts[i - 1], &after = layouts[i];
    EXPECT_GE(before.fit.fits, after.fit.fits);
    if (before.fit.fits != after.fit.fits) continue;
    const std::int64_t chunks[] = {before.fit.tightest_stage().choice.chunks,
                                   after.fit.tightest_stage().choice.chunks};
    EXPECT_LE(chunks[0], chunks[1]);
    if (chunks[0] != chunks[1]) continue;
    EXPECT_LE(before.parallel.tensor * before.parallel.pipeline,
              after.parallel.tensor * after.parallel.pipeline);
  }
}

TEST(RankLayouts, OtherDegreesStayAsTheSetUpHasThem) {
  const MemorySetup setup{.parallel = {.data = 2, .virtual_stages = 2, .context = 2, .expert_tensor = 4}};
  const MemoryModel memory(model_named("qwen3-30b-a3b"), setup);
  const auto rank = [&](std::int64_t devices) {
    return rank_layouts(memory, devices, std::nullopt, device_of(72));
  };
  ASSERT_FALSE(rank(16).empty());
  for (const LayoutFit& layout : rank(16)) {
    EXPECT_EQ(layout.parallel.devices(), 16);
    EXPECT_EQ(
        std::tuple(layout.parallel.context, layout.parallel.virtual_stages, layout.parallel.expert_tensor),
        std::tuple(2, 2, 4));
  }
  EXPECT_TRUE(rank(3).empty());
  for (const std::int64_t devices : {std::int64_t{0}, (std::int64_t{1} << 20) + 1})
    EXPECT_THAT(message_of<InvalidArgument>([&] { rank(devices); }),
                testing::HasSubstr("allowed: 1..1048576"));
}

}  // namespace
}  // namespace evenkeel
