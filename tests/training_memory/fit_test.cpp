// Setups that fit, on MemFine's models. The longest sequence and every piece of advice must fit; one step
// beyond must not.
#include "evenkeel/training_memory/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>

#include "evenkeel/base/error.h"
#include "evenkeel/training_memory/advice.h"
#include "tests/training_memory/support.h"

namespace evenkeel {
namespace {

constexpr std::int64_t calibrated_received = 596'797;

DeviceMemory memfine_device(double alpha, double static_gigabytes) {
  return {.available_bytes = gigabytes(64 * alpha), .static_bytes = gigabytes(static_gigabytes)};
}

TEST(Fit, MemFinesFirstModelFitsWithTwoChunksAndNotWithOneAndWithFourOfTheWorstRouting) {
  const MemoryModel memory(model_named("memfine-model-1"), memfine_setup());
  DeviceMemory device = memfine_device(0.9, 43);
  const StageFit two = fit(memory, calibrated_received, device).tightest_stage();
  EXPECT_EQ(two.choice, (MactChoice{.least_chunks = 2, .chunks = 2, .promised = true}));
  EXPECT_EQ(two.most_received, 371'645);
  EXPECT_NEAR(static_cast<double>(two.total_bytes()), 54.9e9, 0.01e9);
  const StageFit worst = fit(memory, std::nullopt, device).tightest_stage();
  EXPECT_EQ(worst.received, 32 * 4096 * 8);
  EXPECT_EQ(worst.choice, (MactChoice{.least_chunks = 3, .chunks = 4, .promised = true}));
  device.bins = {1};
  EXPECT_FALSE(fit(memory, calibrated_received, device).fits);
  using Change = Advice::Change;  // static bytes are given, so there is no advice on parallelism
  EXPECT_THAT(what_would_fit(memory, calibrated_received, device),
              testing::ElementsAre(Advice{Change::chunks, 2, {}}, Advice{Change::sequence, 2611, {}},
                                   Advice{Change::available_bytes, 43'000'000'000 + 22'900'002'816, {}}));
}

TEST(Fit, AStageFitsExactlyWhereTheChosenBinIsPromised) {
  std::mt19937_64 random(3);
  const ModelDescription model = model_named("memfine-model-1");
  for (int trial = 0; trial < 400; ++trial) {
    MemorySetup setup = memfine_setup();
    setup.full_recompute = trial % 3 != 0;
    const MemoryModel memory(model, setup);
    const DeviceMemory device = memfine_device(0.4 + 0.6 * static_cast<double>(random() % 1000) / 1000,
                                               static_cast<double>(random() % 50));
    const auto received = static_cast<std::int64_t>(1 + random() % 1'000'000);
    for (const StageFit& stage : fit(memory, received, device).stages) {
      EXPECT_EQ(stage.fits, stage.choice.promised) << trial;
      EXPECT_EQ(stage.fits, stage.total_bytes() <= device.available_bytes);
    }
  }
}

TEST(Fit, TheLongestSequenceFitsAndOneTokenMoreDoesNot) {
  const ModelDescription model = model_named("deepseek-v3");
  for (const std::int64_t available : {30'000'000'000, 64'000'000'000, 141'000'000'000}) {
    MemorySetup setup{.parallel = {.pipeline = 16, .expert = 64, .data = 64}};
    const MemoryModel memory(model, setup);
    const DeviceMemory device{.available_bytes = available};
    for (const ReceivedRows received : {ReceivedRows{}, ReceivedRows{100'000}}) {
      const std::int64_t longest = longest_sequence(memory, received, device);
      const auto fits = [&](std::int64_t sequence) {
        setup.sequence = sequence;
        const ReceivedRows rows = received ? ReceivedRows{(*received * sequence + 4095) / 4096} : received;
        return fit(MemoryModel(model, setup), rows, device).fits;
      };
      if (longest > 0) {
        EXPECT_TRUE(fits(longest)) << available;
      }
      EXPECT_FALSE(fits(longest + 1)) << available;
    }
  }
}

// Applies one piece of advice; true if the setup then fits.
bool enough(const MemoryModel& memory, ReceivedRows received, DeviceMemory device, const Advice& advice) {
  MemorySetup setup = memory.setup();
  using Change = Advice::Change;
  switch (advice.change) {
    case Change::chunks:
      device.bins = {advice.value};
      break;
    case Change::full_recompute:
      setup.full_recompute = true;
      setup.selective = {};
      break;
    case Change::sharded_optimizer:
      setup.extra.sharded_optimizer = true;
      break;
    case Change::fully_sharded:
      setup.extra.fully_sharded = true;
      break;
    case Change::micro_batch:
      setup.micro_batch = advice.value;
      break;
    case Change::sequence:
      if (received) received = (*received * advice.value + setup.sequence - 1) / setup.sequence;
      setup.sequence = advice.value;
      break;
    case Change::available_bytes:
      device.available_bytes = advice.value;
      break;
    default:
      setup.parallel = advice.parallel;
  }
  return fit(MemoryModel(memory.model(), setup), received, device).fits;
}

// The next smaller change of the same kind; none for switches and for changes that also raise data
// parallelism.
std::optional<Advice> less_than(Advice piece) {
  using Change = Advice::Change;
  if (piece.change == Change::chunks || piece.change == Change::available_bytes)
    --piece.value;
  else if (piece.change == Change::micro_batch || piece.change == Change::sequence)
    ++piece.value;
  else if (piece.change == Change::tensor)
    piece.parallel.tensor /= 2;
  else if (piece.change == Change::pipeline)
    piece.parallel.pipeline /= 2;
  else
    return std::nullopt;
  return piece;
}

TEST(Advice, EachPieceIsEnoughByItselfAndLessOfItIsNot) {
  std::mt19937_64 random(17);
  std::map<Advice::Change, int> seen;
  const ModelDescription model = model_named("deepseek-v3");
  for (int trial = 0; trial < 60; ++trial) {
    MemorySetup setup;
    setup.parallel.pipeline = 1 << (random() % 5);
    setup.parallel.expert = 1 << (random() % 7);
    setup.parallel.tensor = 1 << (random() % 3);
    setup.parallel.data = setup.parallel.expert * (1 << (random() % 3));
    setup.micro_batch = 1 + static_cast<std::int64_t>(random() % 4);
    setup.full_recompute = random() % 2 == 0;
    const MemoryModel memory(model, setup);
    const DeviceMemory device{.available_bytes = gigabytes(40 + static_cast<double>(random() % 400))};
    const ReceivedRows received =
        random() % 2 == 0 ? ReceivedRows{} : ReceivedRows{static_cast<std::int64_t>(random() % 3'000'000)};
    if (fit(memory, received, device).fits) continue;
    const auto advice = what_would_fit(memory, received, device);
    ASSERT_FALSE(advice.empty());
    EXPECT_EQ(advice.back().change, Advice::Change::available_bytes);
    for (const Advice& piece : advice) {
      ++seen[piece.change];
      EXPECT_TRUE(enough(memory, received, device, piece))
          << name_of(piece.change) << " " << piece.value << ", trial " << trial;
      if (const auto less = less_than(piece)) {
        EXPECT_FALSE(enough(memory, received, device, *less)) << name_of(piece.change) << ", trial " << trial;
      }
    }
  }
  EXPECT_GE(seen.size(), 7U);
}

TEST(Advice, DevicesAreDoubledTogetherOnlyWhereNoneIsEnoughByItself) {
  MemorySetup setup;
  setup.parallel.expert = setup.parallel.data = 8;
  const MemoryModel memory(model_named("kimi-k2"), setup);
  const DeviceMemory device{.available_bytes = gigabytes(72)};
  const auto advice = what_would_fit(memory, std::nullopt, device);
  ASSERT_EQ(advice.size(), 2U);
  EXPECT_EQ(advice.front().change, Advice::Change::devices);
  EXPECT_TRUE(enough(memory, std::nullopt, device, advice.front()));
  const Parallelism& found = advice.front().parallel;
  EXPECT_EQ(found.devices(), 8 * advice.front().value);
  // No layout with fewer devices fits.
  int tried = 0;
  for (std::int64_t tensor = 1; tensor <= 8; tensor *= 2)
    for (std::int64_t pipeline = 1; pipeline <= 32; pipeline *= 2)
      for (std::int64_t expert = 8; expert <= 256; expert *= 2) {
        setup.parallel = with_least_data({.tensor = tensor, .pipeline = pipeline, .expert = expert});
        setup.parallel.data = std::max<std::int64_t>(setup.parallel.data, 8);
        if (setup.parallel.devices() >= found.devices()) continue;
        ++tried;
        EXPECT_FALSE(fit(MemoryModel(memory.model(), setup), std::nullopt, device).fits)
            << tensor << " x " << pipeline << " x " << expert;
      }
  EXPECT_GT(tried, 20);
}

TEST(Fit, ReceivedRowsBelow0AreRefusedWhateverIsCounted) {
  for (const bool kept : {false, true}) {
    MemorySetup setup = memfine_setup();
    setup.extra.kept_tensors = kept;
    const MemoryModel memory(model_named("deepseek-v3"), setup);
    EXPECT_THROW(fit_stage(memory, 3, -1, memfine_device(0.9, 80)), InvalidArgument) << kept;
  }
}

}  // namespace
}  // namespace evenkeel
