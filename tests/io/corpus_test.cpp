// Runs the readers on every seed of the fuzz targets and on every input that ever made them fail.
#include <filesystem>

#include "tests/fuzz/exercise.h"
#include "tests/io/counted_memory.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

class Corpus : public testing::TestWithParam<const char*> {};

TEST_P(Corpus, IsReadOrRefusedInMemoryAndTimeInProportionToTheFile) {
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(repository_file("tests/fuzz/corpus/") + GetParam())) {
    const auto bytes = bytes_of(read_text(entry.path()));
    SCOPED_TRACE(entry.path());
    const PeakMemory peak;
    EXPECT_LT(cpu_seconds([&] { EXPECT_NO_THROW(fuzz::exercise(GetParam(), bytes)); }),
              fuzz::allowed_seconds(bytes.size()));
    EXPECT_LT(peak.bytes(), fuzz::allowed_bytes(bytes.size()));
    ++files;
  }
  EXPECT_GE(files, 10U);
}

// A truncated file is either refused or read: no prefix of a good file may crash a reader.
TEST_P(Corpus, MayEndAnywhere) {
  for (const auto& entry :
       std::filesystem::directory_iterator(repository_file("tests/fuzz/corpus/") + GetParam())) {
    const auto bytes = bytes_of(read_text(entry.path()));
    if (bytes.size() > 2000) continue;
    SCOPED_TRACE(entry.path());
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_NO_THROW(fuzz::exercise(GetParam(), std::span(bytes).first(size))) << "cut at " << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Readers, Corpus,
                         testing::Values("safetensors", "npy", "npz", "json", "trace", "checkpoint", "pickle",
                                         "recording", "foreign", "topology", "trained_layer", "cost"),
                         [](const auto& target) { return std::string(target.param); });

}  // namespace
}  // namespace evenkeel
