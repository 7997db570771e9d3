#include "evenkeel/io/profile_file.h"

#include <gtest/gtest.h>

#include <random>

#include "evenkeel/base/error.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

RoutingProfile random_profile(int layers, int experts, bool with_transitions) {
  std::mt19937_64 random(static_cast<std::uint64_t>(layers * 100 + experts));
  const auto cells = static_cast<std::size_t>(layers * experts);
  std::vector<std::int64_t> loads(cells);
  std::vector<std::int64_t> transitions(with_transitions ? cells * static_cast<std::size_t>(experts) -
                                                               static_cast<std::size_t>(experts * experts)
                                                         : 0);
  for (auto& load : loads) load = static_cast<std::int64_t>(random() >> 10);
  for (auto& pairs : transitions) pairs = static_cast<std::int64_t>(random() >> 16);
  return RoutingProfile(layers, experts, loads, transitions);
}

TEST(ProfileFile, WrittenInAnyFormatReadsBackTheSame) {
  TempFolder folder;
  for (FileFormat format : {FileFormat::safetensors, FileFormat::npz, FileFormat::json}) {
    for (int layers : {1, 2, 5}) {
      for (bool with_transitions : {true, false}) {
        const RoutingProfile written = random_profile(layers, 7, with_transitions);
        write_profile(written, folder / "p", format);
        EXPECT_EQ(read_profile(folder / "p"), written) << name_of(format) << ", " << layers << " layers";
      }
    }
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"p"});
}

TEST(ProfileFile, OfFewTokensAndManyExpertsReadsBackFromNpz) {
  TempFolder folder;
  RoutingProfile sparse(4, 384);
  sparse.add_tokens(std::vector<std::int32_t>{1, 2, 3, 4}, 1);
  write_profile(sparse, folder / "p", FileFormat::npz);
  EXPECT_EQ(read_profile(folder / "p"), sparse);
}

TEST(ProfileFile, SaysItsFormat) {
  TempFolder folder;
  write_profile(random_profile(2, 3, true), folder / "p");
  EXPECT_EQ(open_array_file(folder / "p")->metadata().at("format"), "evenkeel.profile.v1");
}

TEST(ProfileFile, WrittenByTheSafetensorsPackageIsRead) {
  const RoutingProfile profile = read_profile(test_data("profile.safetensors"));
  EXPECT_EQ(profile, RoutingProfile(2, 3, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

std::string profile_refusal(std::string_view json) {
  return message_of<ParseError>([&] { read_profile(source_of(json)); });
}

TEST(ProfileFile, ThatCannotBeAProfileSaysWhy) {
  EXPECT_EQ(profile_refusal("{}"), "f: loads: is missing");
  EXPECT_EQ(profile_refusal("[1]"), "f: is not a JSON object");
  EXPECT_EQ(profile_refusal(R"({"loads": []})"),
            "f: loads: is empty; it is a list by layer of lists by expert");
  EXPECT_EQ(profile_refusal(R"({"loads": [1, 2]})"), "f: loads[0]: is a JSON number, not a list");
  EXPECT_EQ(profile_refusal(R"({"loads": [[1, 2], [3]]})"),
            "f: loads[1]: has 1 elements where the first had 2");
  EXPECT_EQ(profile_refusal(R"({"loads": [[1, -2]]})"), "f: loads: element 1 is -2; a load is 0 or more");
  EXPECT_EQ(profile_refusal(R"({"loads": [[1], [2]], "transitions": [[[1, 2]]]})"),
            "f: transitions: shape [1, 1, 2] is not [layers - 1, experts, experts], [1, 1, 1]");
  EXPECT_EQ(profile_refusal(R"({"format": "evenkeel.profile.v2", "loads": [[3, 1]]})"),
            "f: format: is \"evenkeel.profile.v2\", not \"evenkeel.profile.v1\"");
  EXPECT_EQ(profile_refusal(R"({"num_layers": 2, "loads": [[3, 1]]})"),
            "f: num_layers: is 2, but loads are of 1");
  EXPECT_EQ(profile_refusal(R"({"num_experts": 128, "loads": [[3, 1]]})"),
            "f: num_experts: is 128, but loads are of 2");
  EXPECT_EQ(message_of<ParseError>([] {
              read_profile(test_data("trace.safetensors"));
            }).substr(test_data("").size()),
            "trace.safetensors: format: is evenkeel.trace.v1, not evenkeel.profile.v1");
}

TEST(ProfileFile, WithATotalAboveTheLargestIntegerIsAParseErrorInEveryFormat) {
  EXPECT_EQ(profile_refusal(R"({"loads": [[9223372036854775807], [1]]})"),
            "f: loads: the total of loads is above 2^63-1");
  const std::string data = std::string(7, '\xff') + '\x7f' + '\x01' + std::string(7, '\0');
  const auto file =
      source_of(safetensors_text(R"({"loads":{"dtype":"I64","shape":[1,2],"data_offsets":[0,16]}})", data));
  EXPECT_EQ(message_of<ParseError>([&] { read_profile(file); }),
            "f: loads: the total of loads is above 2^63-1");
}

TEST(ProfileFile, OfArraysWithOddShapesSaysWhichAreRight) {
  const auto refusal_of = [](std::string_view header, std::size_t bytes) {
    const auto source = source_of(safetensors_text(header, std::string(bytes, '\0')));
    return message_of<ParseError>([&] { read_profile(source); });
  };
  EXPECT_EQ(refusal_of(R"({"loads":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}})", 16),
            "f: loads: shape [2] is not [layers, experts]");
  EXPECT_EQ(refusal_of(R"({"loads":{"dtype":"I8","shape":[0,5],"data_offsets":[0,0]}})", 0),
            "f: loads: shape [0, 5] is not [layers, experts]");
  EXPECT_EQ(refusal_of(R"({"loads":{"dtype":"I8","shape":[2,2],"data_offsets":[0,4]},)"
                       R"("transitions":{"dtype":"I8","shape":[4],"data_offsets":[4,8]}})",
                       8),
            "f: transitions: shape [4] is not [layers - 1, experts, experts], [1, 2, 2]");
}

}  // namespace
}  // namespace evenkeel
