// JSON documents: the reader gives the values of nlohmann-json's own reader, in time linear in the text's
// length.
#include <array>
#include <random>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/json.h"
#include "tests/io/support.h"

namespace evenkeel::internal {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::IsEmpty;

std::string json_refusal(const std::string& text) {
  return message_of<ParseError>([&] { parse_json(text, "f"); });
}

std::string repeated(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

Json random_value(std::mt19937& random, int depth) {
  const auto below = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
  const auto text = [&] {
    static const std::array<std::string, 8> parts = {"a",      "\n",         "\"",  "\\",
                                                     "\u00e9", "\U0001f600", "key", "/"};
    std::string made;
    for (std::size_t i = below(4); i > 0; --i) made += parts[below(parts.size())];
    return made;
  };
  switch (below(depth > 0 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return below(2) == 0;
    case 2:
      return static_cast<std::int64_t>(random()) - (std::int64_t{1} << 31);
    case 3:
      return ~std::uint64_t{0} - random();
    case 4:
      return static_cast<double>(random()) / 7;
    case 5:
      return text();
    case 6: {
      Json list = Json::array();
      for (std::size_t i = below(5); i > 0; --i) list.push_back(random_value(random, depth - 1));
      return list;
    }
    default: {
      Json object = Json::object();
      for (std::size_t i = below(5); i > 0; --i) object[text()] = random_value(random, depth - 1);
      return object;
    }
  }
}

TEST(JsonDocument, HasWhatThePlainReaderReads) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Json made = random_value(random, 5);
    const bool ascii = seed % 2 == 0;
    const std::string text = made.dump(seed % 3 == 0 ? 2 : -1, ' ', ascii);
    EXPECT_EQ(static_cast<const Json&>(parse_json(text, "f")), Json::parse(text));
  }
}

TEST(JsonDocument, IsRefusedWhereProgramsReadItDifferently) {
  for (const auto& [text, why] : std::vector<std::pair<std::string, const char*>>{
           {"{\"a\": 1}\0{\"a\": 2}"s, "f: byte 8: is a NUL, which no JSON has"},
           {"{\"a\": 1}\0"s, "f: byte 8: is a NUL, which no JSON has"},
           {"[\"a\0b\"]"s, "f: byte 3: is a NUL, which no JSON has"},
           {R"({"b": 1, "a": 2, "b": 3})", "f: b: is given twice"},
           {R"([{"x": {"\u0061": 1, "a": 2}}])", "f: a: is given twice"}})
    EXPECT_EQ(json_refusal(text), why);
  const ByteSource lines = source_of("{}\n{\"a\": 1}\0{\"b\": 2}\n"s);
  EXPECT_EQ(message_of<ParseError>([&] { for_each_json_line(lines, [](JsonDocument&&, std::int64_t) {}); }),
            "f: line 2: byte 11: is a NUL, which no JSON has");
  EXPECT_EQ(message_of<ParseError>([] { open_array_file(source_of(safetensors_text("{}\0 "s))); }),
            "f: byte 10: is a NUL, which no JSON has");
}

TEST(JsonDocument, IsAsDeepAsItMayBe) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(16), "f"));
  EXPECT_EQ(json_refusal(nested(17)), "f: is nested deeper than 16 levels");
  EXPECT_EQ(json_refusal(std::string(1000000, '[')), "f: is nested deeper than 16 levels");
}

TEST(JsonDocument, HasAsManyPartsAsItMay) {
  EXPECT_EQ(json_refusal("[" + repeated("[],", max_json_parts) + "0]"),
            "f: byte 12582911: more than 4194304 lists, objects and texts in one JSON");
  EXPECT_NO_THROW(parse_json("[" + repeated("7,", 2 * max_json_parts) + "0]", "f"));
}

TEST(JsonDocument, TellsTheKeysOfItsOutermostObject) {
  const auto keys_of = [](std::string_view text, std::size_t most = 9) {
    std::vector<std::string> keys;
    for_each_outer_key(text, [&](std::string_view key) {
      keys.emplace_back(key);
      return keys.size() < most;
    });
    return keys;
  };
  EXPECT_THAT(keys_of(R"({"a": {"x": [1]}, "b\u0062": [{"y": 2}], "c": 3} {"d": 4})"),
              ElementsAre("a", "bb", "c"));
  EXPECT_THAT(keys_of(R"({"a": 1, "b": 2, "c": 3})", 2), ElementsAre("a", "b"));
  EXPECT_THAT(keys_of(R"({"a": 1, "b": [[3)"), ElementsAre("a", "b"));
  EXPECT_THAT(keys_of(R"([{"a": 1}])"), IsEmpty());
}

TEST(JsonDocument, IsNamedInMessagesOfFewWords) {
  EXPECT_LT(json_refusal("[\"" + std::string(1000000, 'x')).size(), 1000U);
  EXPECT_LT(json_refusal("[1" + std::string(1000000, '2') + "x]").size(), 1000U);
}

std::string many_tensors(int count) {
  std::string header = "{";
  for (int i = 0; i < count; ++i)
    header +=
        (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  return safetensors_text(header + "}");
}

TEST(JsonDocument, TakesTimeInProportionToItsObjects) {
  expect_linear([](int count) { parse_json("[" + repeated("{},", count) + "0]", "f"); }, 5000);
  expect_linear([](int count) { parse_json("[" + repeated("[],", count) + "0]", "f"); }, 5000);
}

TEST(JsonLines, TakeTimeInProportionToTheirNumber) {
  const auto read = [](int count) {
    for_each_json_line(source_of(repeated("1\n", count)), [](JsonDocument&&, std::int64_t) {});
  };
  expect_linear(read, 30000);
}

TEST(SafetensorsHeader, TakesTimeInProportionToItsTensors) {
  const auto find_all = [](int count) {
    const auto file = open_array_file(source_of(many_tensors(count)));
    for (const ArrayInfo& array : file->arrays()) ASSERT_EQ(file->find(array.name), &array);
  };
  expect_linear(find_all, 3000);
}

}  // namespace
}  // namespace evenkeel::internal
