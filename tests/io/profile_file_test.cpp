#include "evenkeel/io/profile_file.h"

#include <random>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

using ProfileFile = InFolder;

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

TEST_F(ProfileFile, WrittenInAnyFormatReadsBackTheSame) {
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

TEST_F(ProfileFile, OfFewTokensAndManyExpertsReadsBackFromNpz) {
  RoutingProfile sparse(4, 384);
  sparse.add_tokens(std::vector<std::int32_t>{1, 2, 3, 4}, 1);
  write_profile(sparse, folder / "p", FileFormat::npz);
  EXPECT_EQ(read_profile(folder / "p"), sparse);
}

TEST_F(ProfileFile, SaysItsFormat) {
  write_profile(random_profile(2, 3, true), folder / "p");
  EXPECT_EQ(open_array_file(folder / "p")->metadata().at("format"), "evenkeel.profile.v1");
}

TEST_F(ProfileFile, WrittenByTheSafetensorsPackageIsRead) {
  const RoutingProfile profile = read_profile(test_data("profile.safetensors"));
  EXPECT_EQ(profile, RoutingProfile(2, 3, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_F(ProfileFile, ThatCannotBeAProfileSaysWhy) {
  const std::string most = std::string(7, '\xff') + '\x7f', one = '\x01' + std::string(7, '\0'),
                    zeros(16, '\0');
  const auto file = [](const std::vector<FileTensor>& arrays) { return safetensors_of(arrays); };
  const std::vector<Refused> unfit = {
      {"{}", "f: loads: is missing"},
      {"[1]", "f: is not a JSON object"},
      {R"({"loads": []})", "f: loads: is empty; it must be a list by layer of lists by expert"},
      {R"({"loads": [1, 2]})", "f: loads[0]: is a JSON number, not a list"},
      {R"({"loads": [[1, 2], [3]]})", "f: loads[1]: has 1 elements, but the first list has 2"},
      {R"({"loads": [[1, -2]]})", "f: loads: element 1 is -2; a load is 0 or more"},
      {R"({"loads": [[1], [2]], "transitions": [[[1, 2]]]})",
       "f: transitions: shape [1, 1, 2] is not [layers - 1, experts, experts] = [1, 1, 1]"},
      {R"({"format": "evenkeel.profile.v2", "loads": [[3, 1]]})",
       "f: format: is \"evenkeel.profile.v2\", not \"evenkeel.profile.v1\""},
      {R"({"num_layers": 2, "loads": [[3, 1]]})", "f: num_layers: is 2, but the loads have 1"},
      {R"({"num_experts": 128, "loads": [[3, 1]]})", "f: num_experts: is 128, but the loads have 2"},
      // A total above the largest integer, in either format.
      {R"({"loads": [[9223372036854775807], [1]]})", "f: loads: the total of loads is above 2^63-1"},
      {file({{"loads", "I64", {1, 2}, most + one}}), "f: loads: the total of loads is above 2^63-1"},
      {file({{"loads", "I64", {2}, zeros}}), "f: loads: shape [2] is not [layers, experts]"},
      {file({{"loads", "I8", {0, 5}, ""}}), "f: loads: shape [0, 5] is not [layers, experts]"},
      {file({{"loads", "I8", {2, 2}, "abcd"}, {"transitions", "I8", {4}, "abcd"}}),
       "f: transitions: shape [4] is not [layers - 1, experts, experts] = [1, 2, 2]"},
  };
  expect_refused([](const std::string& text) { read_profile(source_of(text)); }, unfit);
  EXPECT_EQ(message_of<ParseError>([] { read_profile(test_data("trace.safetensors")); }),
            test_data("trace.safetensors") + ": format: is evenkeel.trace.v1, not evenkeel.profile.v1");
}

}  // namespace
}  // namespace evenkeel
