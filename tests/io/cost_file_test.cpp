#include "evenkeel/io/cost_file.h"

#include <string>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

CostModel some_cost() {
  return {.flops_per_second = 2e11,
          .weight_bytes_per_second = 3e10,
          .overlap = 0.625,
          .link_bytes_per_second = 4e9,
          .chunk_seconds = 5e-5};
}

TEST(CostFile, ReadsBackWhatWasWritten) {
  TempFolder folder;
  write_cost(some_cost(), {.cpu = "some CPU", .cores = 2, .ranks = 8, .layer = "some layer"},
             folder / "cost.json");
  EXPECT_EQ(read_cost(folder / "cost.json"), some_cost());
}

TEST(CostFile, WithoutAnOverlapCountsOnNone) {
  CostModel without = some_cost();
  without.overlap = 0;
  EXPECT_EQ(read_cost(source_of(R"({"format": "evenkeel.cost.v1", "flops_per_second": 2e11,
      "weight_bytes_per_second": 3e10, "link_bytes_per_second": 4e9, "chunk_seconds": 5e-5})")),
            without);
}

TEST(CostFile, IsReadToItsEnd) {
  EXPECT_EQ(message_of<ParseError>([] { read_cost(source_of(std::string("{}\0{}", 5))); }),
            "f: byte 2: is a NUL, which no JSON has");
  EXPECT_EQ(message_of<ParseError>([] { read_cost(source_of(std::string(10000, '['))); }),
            "f: nested deeper than 16");
}

}  // namespace
}  // namespace evenkeel
