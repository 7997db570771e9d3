#include "evenkeel/io/cost_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

using Json = nlohmann::json;

// A machine in which all numbers differ.
Machine some_machine() {
  Machine machine;
  double value = 0.5;
  for (const MachineNumber& number : machine_numbers()) machine.*number.value = number.least + (value *= 2);
  machine.overlap = 0.625;
  return machine;
}

// The message about a key that the old form does not have.
std::string unknown_key(const std::string& key) {
  return "f: " + key +
         ": is not a key of a cost file; known: format, measured_on, flops_per_second, "
         "weight_bytes_per_second, overlap, link_bytes_per_second, chunk_seconds";
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
            unknown_key("inner_half"));
}

std::string cost_refusal(const std::string& text) {
  return message_of<ParseError>([&] { read_cost(source_of(text)); });
}

TEST(CostFile, SaysWhichKeyIsWrong) {
  const Json whole = {{"format", "evenkeel.cost.v1"},
                      {"flops_per_second", 1e11},
                      {"weight_bytes_per_second", 1e10},
                      {"link_bytes_per_second", 5e9},
                      {"chunk_seconds", 5e-5}};
  const auto with = [&](const std::string& key, const Json& value) {
    Json json = whole;
    json.merge_patch({{key, value}});  // null removes the key
    return cost_refusal(json.dump());
  };
  const std::string needed = "not \"evenkeel.cost.v2\"; evenkeel bench --calibrate writes such a file";
  EXPECT_EQ(with("format", nullptr), "f: format: is missing, " + needed);
  EXPECT_EQ(with("format", "evenkeel.cost.v3"), "f: format: is \"evenkeel.cost.v3\", " + needed);
  EXPECT_EQ(with("format", "evenkeel.cost.v2"), "f: inner_half: is missing");
  EXPECT_EQ(with("flops", 1), unknown_key("flops"));
  for (double overlap : {-0.5, 1.5})
    EXPECT_EQ(with("overlap", overlap), fmt::format("f: overlap: is {}; allowed: 0..1", overlap));
  for (const auto& [key, value] : whole.items()) {
    if (key == "format") continue;
    EXPECT_EQ(with(key, nullptr), "f: " + key + ": is missing");
    EXPECT_EQ(with(key, "fast"), "f: " + key + ": is a JSON string, not a number");
    const std::string allowed = key == "chunk_seconds" ? "0..1e+06" : "1..1e+30";
    EXPECT_EQ(with(key, 1e300), "f: " + key + ": is 1e+300; allowed: " + allowed);
    EXPECT_EQ(with(key, -1.5), "f: " + key + ": is -1.5; allowed: " + allowed);
  }
}

TEST(CostFile, IsOneJsonObjectReadToItsEnd) {
  EXPECT_EQ(cost_refusal(std::string("{}\0{}", 5)), "f: byte 2: is a NUL, which no JSON has");
  EXPECT_EQ(cost_refusal(std::string(10000, '[')), "f: is nested deeper than 16 levels");
  EXPECT_EQ(cost_refusal("[1]"), "f: is a JSON array, not an object");
}

}  // namespace
}  // namespace evenkeel
