// All that the command prints. Results go to stdout, and that they cannot is an error; what is said beside
// them goes to stderr, and that it cannot changes nothing. Names in either are made visible, never obeyed by
// a terminal, and where the locale's characters are not UTF-8 everything is ASCII.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace evenkeel::cli {

// Opens what the parent left closed of stdin, stdout and stderr, such that nothing can be read or written
// there: otherwise the next file opened would take its place. A broken pipe becomes an error of the write.
// First of all in main.
void open_standard_streams();

// From now on nothing is printed: another process of the job does.
void be_silent();
bool is_silent();

// Lines of text on stdout. Throws InvalidArgument ("standard output") if they cannot be written; ends the
// program, as SIGPIPE does, if their reader has gone and the parent did not ignore that.
void print_text(std::string_view text);
// A result as evenkeel/report/ writes it, for people or for programs.
template <class Result>
void print_result(const Result& result, bool as_json) {
  print_text(as_json ? to_json(result) : to_text(result));
}
// Throws as print_text does if what was printed did not arrive: a full disk must not look like success.
void require_printed();
// Whether stdout has failed, so that nothing more can be said there.
bool stdout_failed();

// The text of one line as it can be shown here, without its middle where it takes more.
std::string shown(std::string_view line, std::size_t most_bytes);
// A line on stderr, at most 1 KiB of it. Never throws.
void say_line(std::string_view line) noexcept;
template <class... Values>
void say(fmt::format_string<Values...> format, Values&&... values) {
  say_line(fmt::format(format, std::forward<Values>(values)...));
}
// To stderr byte for byte: for who moves a terminal's cursor.
void write_stderr(std::string_view bytes) noexcept;

// Whether stderr is a terminal that obeys escape sequences.
bool stderr_moves_cursor();

}  // namespace evenkeel::cli
