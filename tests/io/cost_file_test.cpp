#include "evenkeel/io/cost_file.h"

#include <string>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

// Every number another one.
Machine some_machine() {
  Machine machine;
  double value = 0.5;
  for (const MachineNumber& number : machine_numbers()) machine.*number.value = number.least + (value *= 2);
  machine.overlap = 0.625;
  return machine;
}

TEST(CostFile, ReadsBackWhatWasWritten) {
  TempFolder folder;
  write_cost(some_machine(), {.cpu = "some CPU", .cores = 2, .ranks = 8, .layer = "some layer"},
             folder / "cost.json");
  EXPECT_EQ(read_cost(folder / "cost.json"), some_machine());
}

TEST(CostFile, OfTheOldFormHasLinksOfOneRateAndNothingElse) {
  Machine old{.flops_per_second = 2e11,
              .weight_bytes_per_second = 3e10,
              .overlap = 0.625,
              .link_bytes_per_second = 5e9,
              .nic_bytes_per_second = 5e9,
              .chunk_seconds = 5e-5};
  const std::string numbers = R"("format": "evenkeel.cost.v1", "flops_per_second": 2e11,
      "weight_bytes_per_second": 3e10, "link_bytes_per_second": 5e9, "chunk_seconds": 5e-5)";
  EXPECT_EQ(read_cost(source_of("{" + numbers + R"(, "overlap": 0.625})")), old);
  old.overlap = 0;
  EXPECT_EQ(read_cost(source_of("{" + numbers + "}")), old);
  EXPECT_EQ(message_of<ParseError>([&] { read_cost(source_of("{" + numbers + R"(, "inner_half": 1})")); }),
            "f: inner_half: is no key of a file of costs");
}

TEST(CostFile, IsReadToItsEnd) {
  EXPECT_EQ(message_of<ParseError>([] { read_cost(source_of(std::string("{}\0{}", 5))); }),
            "f: byte 2: is a NUL, which no JSON has");
  EXPECT_EQ(message_of<ParseError>([] { read_cost(source_of(std::string(10000, '['))); }),
            "f: nested deeper than 16");
}

}  // namespace
}  // namespace evenkeel
