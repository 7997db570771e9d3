// Errors for requests that the operating system refused. They name the limit to look at.
#pragma once

#include <string>
#include <system_error>

#include "evenkeel/base/error.h"

namespace evenkeel {

// The system's message for an errno. For too many open files it adds the limit and what sets it.
std::string describe_errno(int error);

// The error for having started only `made` of `wanted` threads. `what_for` says what they are for ("one for
// each rank").
Unsupported too_few_threads(int wanted, int made, const std::string& what_for,
                            const std::system_error& cause);

}  // namespace evenkeel
