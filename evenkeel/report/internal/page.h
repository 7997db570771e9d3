// A text result for a person: lines and tables, one below the other. Text values such as file names go
// through printable(), so that they cannot add lines.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "evenkeel/base/printable.h"
#include "evenkeel/report/table.h"

namespace evenkeel::internal {

class Page {
  template <class Value>
  static constexpr bool is_text = std::is_convertible_v<const Value&, std::string_view>;
  template <class Value>
  using Shown = std::conditional_t<is_text<Value>, std::string, const Value&>;

 public:
  template <class... Values>
  void put(fmt::format_string<Shown<Values>...> format, const Values&... values) {
    fmt::format_to(std::back_inserter(text_), format, shown(values)...);
  }
  void put(const Table& table) { text_ += table.text(); }
  // Adds whole lines written by this program; names in them must already be printable.
  void put_lines(std::string_view lines) { text_ += lines; }

  std::string text() && { return std::move(text_); }

 private:
  template <class Value>
  static Shown<Value> shown(const Value& value) {
    if constexpr (is_text<Value>)
      return printable(value);
    else
      return value;
  }

  std::string text_;
};

}  // namespace evenkeel::internal
