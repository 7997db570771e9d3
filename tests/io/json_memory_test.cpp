// Heap memory that a JSON document takes for each byte of its text.
#include <gtest/gtest.h>

#include "evenkeel/io/internal/json.h"
#include "tests/io/counted_memory.h"

namespace evenkeel::internal {
namespace {

// Bytes of the heap for each byte of a list of `element` again and again, while it is parsed.
double bytes_a_byte(std::string_view element) {
  std::string text = "[";
  while (text.size() < (std::size_t{4} << 20)) text.append(element).append(",");
  text += "0]";
  const PeakMemory peak;
  parse_json(text, "f");
  return static_cast<double>(peak.bytes()) / static_cast<double>(text.size());
}

TEST(JsonMemory, IsBoundedByTheTextWhateverItHolds) {
  for (const char* element : {"1", "\"\"", "{\"\":1}", "\"a\"", "-1", "1.5", "null"})
    EXPECT_LT(bytes_a_byte(element), 8.5) << element;
}

// The tokenizer keeps all brackets since the last text or number.
TEST(JsonMemory, OfBracketsAloneIsBoundedToo) {
  for (const char* element : {"[]", "{}", "[[]]"}) EXPECT_LT(bytes_a_byte(element), 11.5) << element;
}

TEST(JsonMemory, OfOrdinaryNumbersIsAFewTimesTheText) {
  EXPECT_LT(bytes_a_byte(" 123456"), 3.0);
  EXPECT_LT(bytes_a_byte(" 1234"), 3.5);
}

}  // namespace
}  // namespace evenkeel::internal
