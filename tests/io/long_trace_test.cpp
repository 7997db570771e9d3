// A trace of 100 million tokens, in any format, is read with the memory of one batch.
#include <filesystem>

#include "evenkeel/io/convert.h"
#include "evenkeel/io/trace_file.h"
#include "evenkeel/routing/profile.h"
#include "tests/io/counted_memory.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using LongTrace = InFolder;

constexpr std::int64_t tokens = 100'000'000;
// Memory for the ids of a batch, and for those of one of its blocks as read. They take 4 + 8 + 1 bytes for
// each of about a million assignments; the rest is a margin.
constexpr std::int64_t allowed_bytes = 16 << 20;

// A sparse file whose ids are all zero.
std::string sparse_npy(const TempFolder& folder) {
  const std::string path = folder / "long.npy";
  const std::string head =
      npy_text("{'descr': '|u1', 'fortran_order': False, 'shape': (100000000, 1, 1), }\n");
  write_text(path, head);
  std::filesystem::resize_file(path, head.size() + static_cast<std::uintmax_t>(tokens));
  return path;
}

TEST_F(LongTrace, IsProfiledAndConvertedInTheMemoryOfABatch) {
  const std::string npy = sparse_npy(folder);
  for (const char* name : {"long.npz", "long.safetensors"}) {
    const PeakMemory peak;
    convert_file(npy, folder / name, {.reading = {.num_experts = 2, .axes = "trace"}});
    EXPECT_LT(peak.bytes(), allowed_bytes) << name;
  }
  for (const char* name : {"long.npy", "long.npz", "long.safetensors"}) {
    const PeakMemory peak;
    const auto trace = open_trace(folder / name, {.num_experts = 2});
    const RoutingProfile profile = profile_trace(*trace);
    EXPECT_EQ(profile.load(LayerId(0), ExpertId(0)), tokens) << name;
    EXPECT_LT(peak.bytes(), allowed_bytes) << name;
  }
}

TEST_F(LongTrace, GivesAWindowAtItsEndInTheMemoryOfTheWindow) {
  const auto trace = open_trace(sparse_npy(folder), {.num_experts = 2});
  const PeakMemory peak;
  EXPECT_EQ(trace->read_layer(LayerId(0), {tokens - 10, tokens}).ids, std::vector<std::int32_t>(10, 0));
  EXPECT_LT(peak.bytes(), 4096);
}

}  // namespace
}  // namespace evenkeel
