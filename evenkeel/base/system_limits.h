// Errors for requests that the operating system refused. They name the limit to look at.
#pragma once

#include <string>
#include <system_error>

#include "evenkeel/base/error.h"

namespace evenkeel {

// The system's words for an errno; where too many files are open, also how many may be and what sets that.
std::string describe_errno(int error);

// Of `wanted` threads only `made` could be started; `what_for` says more ("one for each rank").
Unsupported too_few_threads(int wanted, int made, const std::string& what_for,
                            const std::system_error& cause);

}  // namespace evenkeel
