// A result for a person: lines and tables, one below the other.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

#include "evenkeel/report/table.h"

namespace evenkeel::internal {

class Page {
 public:
  template <class... Values>
  void put(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
  }
  void put(const Table& table) { text_ += table.text(); }

  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace evenkeel::internal
