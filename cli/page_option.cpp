#include "cli/page_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "cli/file_options.h"
#include "evenkeel/base/error.h"

namespace evenkeel::cli {

namespace {

std::string& command_line() {
  static std::string line;
  return line;
}

// The word quoted for a shell, if needed.
std::string quoted(std::string_view word) {
  constexpr std::string_view plain = "-_./:,=+%@";
  const auto is_plain = [&](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || plain.find(letter) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return std::string(word);
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

}  // namespace

void remember_command(int argc, const char* const* argv) {
  command_line() = "evenkeel";
  for (int i = 1; i < argc; ++i) command_line() += " " + quoted(argv[i]);
}

PageOrigin page_origin() {
  return {.command = command_line(), .made_with = "evenkeel " EVENKEEL_VERSION};
}

void add_html(CLI::App& app, std::string& html) {
  app.add_option("--html", html, "Also write the result as a page that needs no network")->type_name("FILE");
}

void require_page(const std::string& html, const std::vector<std::string>& recordings,
                  const std::vector<std::string>& others, const std::string& output,
                  const char* output_option) {
  if (html.empty()) return;
  require_pages();
  require_not_read(html, "--html", recordings, others);
  namespace fs = std::filesystem;
  std::error_code unknown;
  const auto place = [&](const std::string& path) {
    return fs::weakly_canonical(fs::absolute(path, unknown), unknown);
  };
  if (!output.empty() && place(html) == place(output))
    throw InvalidArgument("--html", fmt::format("{} is written by {}", html, output_option), "another file");
  require_writable(html);
}

}  // namespace evenkeel::cli
