// The safetensors reader, also on all kinds of false headers.
#include "evenkeel/io/array_file.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

std::string safetensors_refusal(std::string_view header, std::string_view data = "") {
  return message_of<ParseError>([&] { open_array_file(source_of(safetensors_text(header, data))); });
}

TEST(Safetensors, WithoutArraysOrWithEmptyOnesIsWhole) {
  EXPECT_TRUE(open_array_file(source_of(safetensors_text("{}")))->arrays().empty());
  const auto file = open_array_file(
      source_of(safetensors_text(R"({"a":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]}})")));
  EXPECT_EQ(file->at("a").num_elements, 0);
  EXPECT_TRUE(read_floats(*file, "a").values.empty());
}

TEST(Safetensors, HeadersThatAreNotThereAreRefused) {
  const auto claimed = [](const char* length) {
    return std::string(length, 4) + std::string("\0\0\0\0{}", 6);
  };
  expect_refused([](const std::string& text) { open_array_file(source_of(text)); },
                 {{claimed("\x09\0\0\0"), "f: byte 0: claims a header of 9 bytes in a file of 10 bytes"},
                  {claimed("\xff\xff\xff\xff"),
                   "f: byte 0: claims a header of 4294967295 bytes in a file of 10 bytes"}});
}

TEST(Safetensors, HeadersThatAreDamagedSayWhere) {
  const auto one = [](const std::string& described) { return R"({"a":{)" + described + "}}"; };
  const std::string u8 = R"("dtype":"U8",)", offsets = R"("data_offsets":[0,1])";
  for (const auto& [header, why] : std::vector<std::pair<std::string, std::string>>{
           {"{\"a\":" + std::string(100, '['), "is nested deeper than 16 levels"},
           {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
            R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
            "a: is given twice"},
           {R"({"a":1})", "a: is not described by a JSON object"},
           {one(R"("shape":[1],)" + offsets), "a: has no dtype"},
           {one(R"("dtype":"F8_E4M3","shape":[1],)" + offsets), "a: dtype F8_E4M3 is not supported"},
           {one(u8 + offsets), "a: has no shape or no data_offsets"},
           {one(u8 + R"("shape":"1",)" + offsets), "a.shape: is a JSON string, not a list"},
           {one(u8 + R"("shape":[1.5],)" + offsets), "a.shape[0]: 1.5 is not a whole number"},
           {one(u8 + R"("shape":[1.0],)" + offsets),
            "a.shape: has 1.0, which is not written as a whole number"},
           {one(u8 + R"("shape":[1],"data_offsets":[0,1e0])"),
            "a.data_offsets: has 1.0, which is not written as a whole number"},
           {R"({"__metadata__":[]})", "__metadata__: is not a JSON object"},
           {R"({"__metadata__":{"num_experts":4}})", "__metadata__.num_experts: is not a string"}})
    EXPECT_EQ(safetensors_refusal(header, "x"), "f: " + why) << header;
  EXPECT_EQ(safetensors_refusal("{\"a\":}").substr(0, 60),
            "f: byte 14: parse error at line 1, column 6: syntax error wh");
}

TEST(Safetensors, OffsetsAreNeverTrusted) {
  const auto with = [](std::string_view offsets) {
    return safetensors_refusal(
        R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(offsets) + "}}", "wxyz");
  };
  EXPECT_EQ(with("[0,5]"), "f: a.data_offsets: [0, 5] is not a range of the 4 bytes of data");
  EXPECT_EQ(with("[-4,0]"), "f: a.data_offsets: [-4, 0] is not a range of the 4 bytes of data");
  EXPECT_EQ(with("[4,0]"), "f: a.data_offsets: [4, 0] is not a range of the 4 bytes of data");
  EXPECT_EQ(with("[0]"), "f: a.data_offsets: [0] is not a range of the 4 bytes of data");
  EXPECT_EQ(with("[0,9223372036854775808]"), "f: a.data_offsets[1]: 9223372036854775808 is above 2^63-1");
  EXPECT_EQ(with("[0,3]"), "f: a: shape [4] of uint8 does not fit its 3 bytes");
}

TEST(Safetensors, ShapesThatOverflowAreRefused) {
  const auto with = [](std::string_view shape) {
    return safetensors_refusal(R"({"a":{"dtype":"F64","data_offsets":[0,0],"shape":)" + std::string(shape) +
                               "}}");
  };
  EXPECT_EQ(with("[4294967296,4294967296]"),
            "f: a: shape [4294967296, 4294967296] of float64 does not fit its 0 bytes");
  EXPECT_EQ(with("[2305843009213693952]"),
            "f: a: shape [2305843009213693952] of float64 does not fit its 0 bytes");
  EXPECT_EQ(with("[-1,-1]"), "f: a: shape [-1, -1] of float64 does not fit its 0 bytes");
}

TEST(Safetensors, GapsOverlapsAndLeftoversAreRefused) {
  const auto two = [](std::string_view b, std::string_view data) {
    return safetensors_refusal(
        R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":)" +
            std::string(b) + "}}",
        data);
  };
  EXPECT_EQ(two("[1,3]", "xyz"), "f: b.data_offsets: begins at 1, but the array before it ends at 2");
  EXPECT_EQ(two("[3,5]", "xyzuv"), "f: b.data_offsets: begins at 3, but the array before it ends at 2");
  EXPECT_EQ(two("[2,4]", "xyzuv"), "f: the arrays end at byte 4, but there are 5 bytes of data");
}

}  // namespace
}  // namespace evenkeel
