// Messages and data fields of errors.
#include "evenkeel/base/error.h"

#include <gtest/gtest.h>

#include <string>

namespace evenkeel {
namespace {

TEST(BudgetTooSmall, SaysBothSizesInBytesWhereTheyWouldReadAlike) {
  EXPECT_EQ(
      std::string(BudgetTooSmall(7679, 7680, "a layer").what()),
      "budget 7679 bytes is below the least that runs every routing of this shape: 7680 bytes (a layer)");
  EXPECT_EQ(std::string(BudgetTooSmall(48 << 20, 61 << 20, "a layer").what()),
            "budget 48.0 MiB is below the least that runs every routing of this shape: 61.0 MiB (a layer)");
}

TEST(Error, ShowsNamesAsVisibleCharactersAndKeepsTheDataAsTheyWere) {
  const ParseError error("\x1b[31mred.json", "key\nof two lines", "is given twice");
  EXPECT_EQ(std::string(error.what()), "\\x1b[31mred.json: key\\nof two lines: is given twice");
  EXPECT_EQ(std::get<std::string>(error.data()[0].value), "\x1b[31mred.json");
  EXPECT_EQ(std::string(InvalidArgument("a", std::string("b\0c", 3), "d").what()), "a: b\\x00c; allowed: d");
  EXPECT_EQ(std::string(Unsupported("a\x9b"
                                    "b")
                            .what()),
            "a\\x9bb");
}

TEST(Error, IsNoLongerThanAScreenAndEndsAsItWould) {
  const std::string name(1 << 20, 'k');
  const ParseError long_names(name + ".json", name, "is given twice");
  const std::string message = long_names.what();
  EXPECT_LE(message.size(), Error::most_message_bytes);
  EXPECT_TRUE(message.starts_with("kkk"));
  EXPECT_NE(message.find("k...k"), std::string::npos);
  EXPECT_NE(message.find(".json: kkk"), std::string::npos);
  EXPECT_TRUE(message.ends_with("k: is given twice"));
  for (const Error::Field& field : long_names.data())
    EXPECT_LE(std::get<std::string>(field.value).size(), Error::most_field_bytes);
  EXPECT_LE(std::string(Infeasible(name).what()).size(), Error::most_message_bytes);
  EXPECT_LE(std::string(InvalidArgument("a", name, name).what()).size(), Error::most_message_bytes);
  EXPECT_LE(std::string(CommError(1, name, 2, name).what()).size(), Error::most_message_bytes);
}

TEST(Error, KeepsAPathOfAnyLengthAmongItsData) {
  const std::string path = "/" + std::string(4094, 'p');
  EXPECT_EQ(std::get<std::string>(ParseError(path, "", "is damaged").data()[0].value), path);
}

}  // namespace
}  // namespace evenkeel
