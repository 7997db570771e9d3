// Makes a ParseError whose reason is a format string with arguments.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

// Always inlined: otherwise a loop that may throw would keep its variables in memory for the message.
template <class... Args>
[[gnu::always_inline]] inline ParseError parse_error(std::string file, std::string where,
                                                     fmt::format_string<Args...> why, Args&&... args) {
  return {std::move(file), std::move(where), fmt::format(why, std::forward<Args>(args)...)};
}

}  // namespace evenkeel::internal
