#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "evenkeel/base/error.h"
#include "evenkeel/base/printable.h"
#include "evenkeel/report/locale_text.h"

namespace evenkeel::cli {

namespace {

bool sigpipe_ends_us = false;
bool silent = false;

[[noreturn]] void refuse_stdout(int error) {
  if (error == EPIPE && sigpipe_ends_us) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  throw InvalidArgument("standard output", "cannot be written: " + std::generic_category().message(error));
}

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) refuse_stdout(errno);
}

}  // namespace

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // Opened in the wrong direction, so that reads and writes fail as on a closed stream.
    static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
  sigpipe_ends_us = std::signal(SIGPIPE, SIG_IGN) == SIG_DFL;
}

void be_silent() {
  silent = true;
}

bool is_silent() {
  return silent;
}

void print_text(std::string_view text) {
  if (silent) return;
  write_stdout(in_this_locale(printable_lines(text)));
}

void require_printed() {
  if (std::fflush(stdout) != 0) refuse_stdout(errno);
  if (stdout_failed()) refuse_stdout(EIO);
}

bool stdout_failed() {
  return std::ferror(stdout) != 0;
}

std::string shown(std::string_view line, std::size_t most_bytes) {
  return in_this_locale(shortened(printable(line), most_bytes));
}

void say_line(std::string_view line) noexcept {
  try {
    write_stderr(shown(line, Error::most_message_bytes) + "\n");
  } catch (const std::exception&) {
    write_stderr("evenkeel: no memory is left even for the message\n");
  }
}

void write_stderr(std::string_view bytes) noexcept {
  while (!bytes.empty() && !silent) {
    const ssize_t written = ::write(STDERR_FILENO, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

bool stderr_moves_cursor() {
  const char* const terminal = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && terminal != nullptr && *terminal != '\0' &&
         std::string_view(terminal) != "dumb";
}

}  // namespace evenkeel::cli
