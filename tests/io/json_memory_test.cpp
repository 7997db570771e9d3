// Heap memory that parsing JSON takes per byte of text.
#include "evenkeel/io/internal/json.h"
#include "tests/io/counted_memory.h"
#include "tests/io/support.h"

namespace evenkeel::internal {
namespace {

// `[element,element,...]` of about `bytes` bytes.
std::string list_of(std::string_view element, std::size_t bytes) {
  std::string text = "[";
  while (text.size() < bytes) text.append(element).append(",");
  text.back() = ']';
  return text;
}

constexpr std::size_t text_bytes = std::size_t{4} << 20;

// Peak heap bytes per text byte while a list of repeated `element` is parsed and freed.
double bytes_a_byte(std::string_view element) {
  const std::string text = list_of(element, text_bytes);
  const PeakMemory peak;
  parse_json(text, "f");
  return static_cast<double>(peak.bytes()) / static_cast<double>(text.size());
}

TEST(JsonMemory, OfNumbersIsBoundedByTheirText) {
  for (const char* element : {"1", "-1", "1.5", "null"}) EXPECT_LT(bytes_a_byte(element), 8.5) << element;
  EXPECT_LT(bytes_a_byte(" 1234"), 3.5);
  EXPECT_LT(bytes_a_byte(" 123456"), 3.0);
}

// The measured bytes include the text of the file, which is read as a whole, and the resulting array.
TEST(JsonMemory, OfNumbersReadFromAFileIsBoundedByTheirText) {
  for (const std::size_t row_bytes : {std::size_t{128}, std::size_t{4096}, text_bytes}) {
    const std::string text = list_of(list_of("1", row_bytes), text_bytes);
    const ByteSource source = source_of(text);
    const PeakMemory peak;
    EXPECT_EQ(nested_integers(read_json(source), 2, "f", "").shape.size(), 2U);
    EXPECT_LT(static_cast<double>(peak.bytes()) / static_cast<double>(text.size()), 13.0) << row_bytes;
  }
}

// JSON with as many lists, objects and strings as are allowed.
TEST(JsonMemory, OfPartsIsBounded) {
  for (const std::string_view element : {"[]", "{}", "\"\"", "[1]", "{\"\":1}"}) {
    const std::string text = list_of(element, (max_json_parts - 1) * (element.size() + 1));
    const PeakMemory peak;
    parse_json(text, "f");
    EXPECT_LT(peak.bytes(), std::int64_t{900} << 20) << element;
  }
}

}  // namespace
}  // namespace evenkeel::internal
