// Reports an error: one line on stderr, with --json also an object on stdout. All return the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "evenkeel/base/error.h"

namespace evenkeel::cli {

// Argument name of an InvalidArgument about the command line as a whole.
inline constexpr const char* kCommandLine = "command line";

enum class Exit { success = 0, usage = 2, input = 3, impossible = 4, communication = 5 };

// `subcommand` is the one that ran, or null. An InvalidArgument about one of its options is a usage error.
int report(const Error& error, const CLI::App* subcommand, bool json);
// `command` is the top-level app.
int report_usage(const CLI::ParseError& error, const CLI::App& command, const CLI::App* subcommand,
                 bool json);
// For any other exception: of the system or of the standard library.
int report_other(const std::exception& error, bool json);

}  // namespace evenkeel::cli
