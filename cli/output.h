// All output of the command. Results go to stdout; a failed write there is an error. Notes and errors go to
// stderr; a failed write there is ignored. Control characters are printed visibly, so that no terminal obeys
// them. In a locale without UTF-8 everything is ASCII.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace evenkeel::cli {

// Opens those of stdin, stdout and stderr that the parent left closed, so that the next opened file does not
// take their place; reads and writes there still fail. A broken pipe becomes an error of the write. Call it
// first in main.
void open_standard_streams();

// From now on this process prints nothing; another process of the job does.
void be_silent();
bool is_silent();

// Prints lines on stdout. Throws InvalidArgument ("standard output") if they cannot be written. If the reader
// has gone and the parent did not ignore SIGPIPE, the program ends by that signal.
void print_text(std::string_view text);
// Prints a result in the form that evenkeel/report/ gives it: text or JSON.
template <class Result>
void print_result(const Result& result, bool as_json) {
  print_text(as_json ? to_json(result) : to_text(result));
}
// Throws as print_text does if what was printed did not arrive: a full disk must not look like success.
void require_printed();
// Whether a write to stdout has failed.
bool stdout_failed();

// One line as this locale can show it. Leaves out the middle of a line longer than `most_bytes`.
std::string shown(std::string_view line, std::size_t most_bytes);
// A line on stderr, at most 1 KiB of it. Never throws.
void say_line(std::string_view line) noexcept;
template <class... Values>
void say(fmt::format_string<Values...> format, Values&&... values) {
  say_line(fmt::format(format, std::forward<Values>(values)...));
}
// Writes to stderr byte for byte, for callers that move a terminal's cursor.
void write_stderr(std::string_view bytes) noexcept;

// Whether stderr is a terminal that obeys escape sequences.
bool stderr_moves_cursor();

}  // namespace evenkeel::cli
