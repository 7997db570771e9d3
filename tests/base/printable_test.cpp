// How arbitrary bytes are shown on a terminal.
#include "evenkeel/base/printable.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace evenkeel {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  for (const std::string text :
       {"", "layers[3].topk_ids", "d\xc3\xa9j\xc3\xa0 vu", "\xe4\xb8\xad", "\xf0\x9f\x99\x82", "C:\\new"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsControlCharactersAndTurnsOfDirectionAsEscapes) {
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x1b[31m\x07"), "\\x1b[31m\\x07");
  EXPECT_EQ(printable("a\tb\r\nc\x7f"), "a\\tb\\r\\nc\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // CSI as one two-byte character
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "gpj"),
            "\\u202egpj");  // right to left
  EXPECT_EQ(printable("a\xe2\x80\xa8"
                      "b"),
            "a\\u2028b");  // line separator
}

TEST(Printable, ShowsWhatIsNotUtf8AsBytes) {
  EXPECT_EQ(printable("a\xff"
                      "b"),
            "a\\xffb");
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(printable("\xc3"), "\\xc3");                    // truncated sequence
  EXPECT_EQ(printable("\xc0\x8a"), "\\xc0\\x8a");           // overlong encoding of \n
  EXPECT_EQ(printable("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");  // overlong encoding of U+009B
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Printable, GivesNoControlByteWhateverItIsGivenAndChangesNothingTheSecondTime) {
  std::mt19937 draw(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(draw() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(draw());
    const std::string shown = printable(bytes);
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const auto byte = static_cast<unsigned char>(shown[i]);
      EXPECT_TRUE(byte >= 0x20 && byte != 0x7f) << "round " << round;
    }
    EXPECT_EQ(printable(shown), shown) << "round " << round;
  }
}

TEST(PrintableLines, KeepsTheEndsOfLinesAlone) {
  EXPECT_EQ(printable_lines("a\x1b\tb\nc\r\n"), "a\\x1b\\tb\nc\\r\n");
}

TEST(Shortened, LosesItsMiddleWhereItIsTooLong) {
  EXPECT_EQ(shortened("0123456789", 10), "0123456789");
  EXPECT_EQ(shortened("0123456789ab", 9), "0123...ab");
  EXPECT_EQ(shortened("0123456789", 2), "...");
}

TEST(Shortened, CutsThroughNoCharacter) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "\xc3\xa9\xf0\x9f\x99\x82";
  for (std::size_t most = 3; most < text.size(); ++most) {
    const std::string cut = shortened(text, most);
    EXPECT_LE(cut.size(), most);
    EXPECT_EQ(printable(cut), cut) << most;  // still UTF-8
  }
}

}  // namespace
}  // namespace evenkeel
