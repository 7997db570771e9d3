// The error about a file whose reason is a format and its arguments.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

// Inlined, since a loop that may throw would else keep its variables in memory for the message's sake.
template <class... Args>
[[gnu::always_inline]] inline ParseError parse_error(std::string file, std::string where,
                                                     fmt::format_string<Args...> why, Args&&... args) {
  return {std::move(file), std::move(where), fmt::format(why, std::forward<Args>(args)...)};
}

}  // namespace evenkeel::internal
