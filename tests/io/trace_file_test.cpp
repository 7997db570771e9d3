#include "evenkeel/io/trace_file.h"

#include <random>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

using TraceFile = InFolder;

// Only files with array names may repeat an expert within a row.
MemoryTrace random_trace(int experts, std::uint64_t seed, bool with_weights, bool may_repeat) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> ids(60 * 3 * 2);
  for (auto& id : ids) id = static_cast<std::int32_t>(random() % static_cast<unsigned>(experts + 1)) - 1;
  for (std::size_t i = 1; !may_repeat && i < ids.size(); i += 2)
    if (ids[i] == ids[i - 1]) ids[i] = no_expert;
  std::vector<float> weights(with_weights ? ids.size() : 0);
  for (auto& weight : weights) weight = static_cast<float>(random() % 1000) / 999;
  return MemoryTrace({.num_layers = 3, .top_k = 2, .num_experts = experts}, ids, weights, {0, 10, 60});
}

void expect_equal(TraceReader& a, TraceReader& b) {
  ASSERT_EQ(a.info().num_tokens, b.info().num_tokens);
  TraceBatches of_a(a, 7);
  TraceBatches of_b(b, 7);
  while (of_a.next() && of_b.next()) {
    EXPECT_TRUE(std::ranges::equal(of_a.ids(), of_b.ids()));
    if (a.info().has_weights && b.info().has_weights) {
      EXPECT_TRUE(std::ranges::equal(of_a.weights(), of_b.weights()));
    }
  }
}

TEST_F(TraceFile, WrittenInAnyFormatReadsBackTheSame) {
  for (FileFormat format : {FileFormat::safetensors, FileFormat::npz, FileFormat::npy}) {
    for (int experts : {1, 128, 129, 32768, 32769}) {
      for (bool with_weights : {false, true}) {
        const bool whole = format != FileFormat::npy;
        MemoryTrace written = random_trace(experts, static_cast<std::uint64_t>(experts), with_weights, whole);
        write_trace(written, folder / "trace", format);
        const auto read =
            open_trace(folder / "trace", whole ? TraceOptions{} : TraceOptions{.num_experts = experts});
        expect_equal(*read, written);
        EXPECT_EQ(read->info().num_experts, experts);
        EXPECT_EQ(read->info().has_weights, whole && with_weights);
        EXPECT_EQ(read->info().sequence_offsets,
                  whole ? written.info().sequence_offsets : std::vector<std::int64_t>{});
        EXPECT_EQ(open_array_file(folder / "trace")->format(), format);
      }
    }
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"trace"});
}

TEST_F(TraceFile, WithoutTokensReadsBack) {
  MemoryTrace none({.num_layers = 2, .top_k = 1, .num_experts = 4}, {});
  for (FileFormat format : {FileFormat::safetensors, FileFormat::npz, FileFormat::npy}) {
    write_trace(none, folder / "trace", format);
    const auto read = open_trace(folder / "trace");
    EXPECT_EQ(read->info().num_tokens, 0);
    EXPECT_EQ(read->info().num_layers, 2);
  }
}

TEST_F(TraceFile, KeepsFreeMetadata) {
  const auto trace = open_trace(test_data("trace.safetensors"));
  write_trace(*trace, folder / "again.safetensors");
  EXPECT_EQ(open_trace(folder / "again.safetensors")->info().metadata, trace->info().metadata);
}

TEST_F(TraceFile, IsCheckedAgainstTheExpertsTheCallerStates) {
  const auto trace = open_trace(test_data("ids_uint8.npy"), {.num_experts = 12});
  EXPECT_EQ(
      message_of<ParseError>([&] { ids_of(*trace); }),
      test_data("ids_uint8.npy") +
          ": topk_ids: expert id 12 at token 1, layer 0 is outside 0..11; was num_experts meant to be 16?");
  EXPECT_THROW(open_trace(test_data("ids_uint8.npy"), {.num_experts = 0}), InvalidArgument);
}

TEST_F(TraceFile, ThatIsDamagedIsNotLeftHalfWritten) {
  const auto trace = open_trace(test_data("ids_uint8.npy"), {.num_experts = 12});
  for (FileFormat format : {FileFormat::safetensors, FileFormat::npz, FileFormat::npy}) {
    write_text(folder / "kept", "before");
    EXPECT_THROW(write_trace(*trace, folder / "kept", format), ParseError);
    EXPECT_EQ(read_text(folder / "kept"), "before");
    EXPECT_EQ(folder.names(), std::vector<std::string>{"kept"});
  }
}

TEST_F(TraceFile, ThatCannotBeATraceSaysWhy) {
  const auto read = [](const std::string& seed) {
    const auto trace = open_trace(source_of(read_text(repository_file("tests/fuzz/corpus/trace/" + seed))));
    for (TraceBatches batches(*trace); batches.next();)
      if (trace->info().has_weights) batches.weights();
  };
  const std::vector<Refused> seeds = {
      {"id-too-big",
       "f: topk_ids: expert id 9 at token 0, layer 1 is outside 0..7; was num_experts meant to be 16?"},
      {"id-negative",
       "f: topk_ids: expert id -2 at token 0, layer 1 is outside 0..65535; -1 means no expert"},
      {"id-2-to-63", "f: element 0 is above 2^63-1"},
      {"no-layers",
       "f: topk_ids: shape [3, 0, 2] is not [tokens, layers, k] with at least one layer and k >= 1"},
      {"row-too-wide", "f: shape [0, 1000000000000, 8]: at most 1048576 assignments a token are read"},
      {"experts-absurd", "f: num_experts: '99999999999999999999' is not a whole number in 1..65536"},
      {"offsets-descend", "f: sequence_offsets: begin at 4, not at 0"},
      {"offsets-past-end", "f: sequence_offsets: end at 20 in a trace of 4 tokens"},
      {"weights-other-shape",
       "f: topk_weights: is float32 [2, 3, 2]; weights must be floating-point, with the shape of the ids, "
       "[4, 3, 2]"},
      {"weights-nan", "f: topk_weights: weight nan at token 0, layer 0 is not finite"},
  };
  expect_refused(read, seeds);
}

TEST_F(TraceFile, IsNotWrittenAsJson) {
  MemoryTrace trace = random_trace(4, 1, false, false);
  EXPECT_EQ(message_of<InvalidArgument>([&] { write_trace(trace, "t.json", FileFormat::json); }),
            "t.json: a trace is not written as JSON; allowed: safetensors, npz or npy");
}

}  // namespace
}  // namespace evenkeel
