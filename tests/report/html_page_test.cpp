// HTML pages as files: names are escaped, and drawings round within limits. tests/cli/html_test.py tests how
// pages look.
#include "evenkeel/report/internal/html_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

namespace {

using testing::HasSubstr;

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

Json data_of(const std::string& html) {
  const std::string begin = "id=\"data\">";
  const std::size_t from = html.find(begin) + begin.size();
  return Json::parse(html.substr(from, html.find("</script>", from) - from));
}

class HtmlPage : public testing::Test {
 protected:
  void SetUp() override {
    try {
      require_pages();
    } catch (const Unsupported& no_pages) {
      GTEST_SKIP() << no_pages.what();
    }
  }
};

TEST_F(HtmlPage, HoldsItsDocumentWhateverNamesAreInIt) {
  const std::string plain = html_page(page_of("plain", {"evenkeel", "test"}));
  for (const std::string name :
       {"</script><script>x", "<!--", "]]>", "</title>&amp;", "\xe2\x80\xa8", "a\"b'c\\"}) {
    Json page = page_of(name, {name, "test"});
    page["notes"].push_back(name);
    const std::string html = html_page(page);
    EXPECT_EQ(data_of(html), page) << name;
    for (const char* tag : {"<script", "</script", "<!--", "</title"})
      EXPECT_EQ(count_of(tag, html), count_of(tag, plain)) << name;
  }
}

TEST_F(HtmlPage, AllowsNoRequest) {
  const std::string html = html_page(page_of("page", {"evenkeel", "test"}));
  EXPECT_THAT(
      html,
      HasSubstr("content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\""));
  for (const char* link : {"<link", "<img", " src=\"", "@import"})
    EXPECT_EQ(count_of(link, html), 0U) << link;
  EXPECT_THAT(html, HasSubstr("Mike Bostock"));
}

TEST_F(HtmlPage, TakesTextThatIsNotUtf8) {
  EXPECT_NO_THROW(html_page(page_of("\xff", {"\xfe", "test"})));
}

TEST(Drawn, IsWithinHalfADigitOfFour) {
  std::mt19937_64 draw(7);
  for (int i = 0; i < 2000; ++i) {
    const double value =
        std::pow(10, std::uniform_real_distribution(-9.0, 15.0)(draw)) * (i % 2 == 0 ? 1 : -1);
    const Json json = drawn(value);
    EXPECT_NEAR(json.get<double>() / value, 1, 0.501e-3) << value;
    EXPECT_LE(json.dump().size(), 17U) << value;
  }
}

TEST(Drawn, WritesWholeNumbersWithoutAPointAndWhatIsNoneAsNull) {
  EXPECT_EQ(drawn(3.0).dump(), "3");
  EXPECT_EQ(drawn(0.0).dump(), "0");
  EXPECT_EQ(drawn(1234567.0).dump(), "1235000");
  EXPECT_EQ(drawn(1.23456).dump(), "1.235");
  EXPECT_EQ(drawn(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
  EXPECT_EQ(drawn(std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(Pooled, KeepsTheLargestOfEachPoolAndNothingWhereThereIsNone) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> pools = pooled(std::vector<double>{1, 3, none, 2, none, none, 7}, 2);
  EXPECT_THAT(std::span(pools).first(2), testing::ElementsAre(3, 2));
  EXPECT_TRUE(std::isnan(pools[2]));
  EXPECT_EQ(pools[3], 7);
  for (std::size_t columns = 1; columns < 200; ++columns)
    EXPECT_LE((columns + pool_of(columns, 13) - 1) / pool_of(columns, 13), 13U);
}

}  // namespace

}  // namespace evenkeel::internal
