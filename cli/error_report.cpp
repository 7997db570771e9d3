#include "cli/error_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "cli/output.h"
#include "cli/progress.h"
#include "evenkeel/base/parse.h"
#include "evenkeel/report/error.h"

namespace evenkeel::cli {

namespace {

// mpirun exits with the status of the first process that fails, so a silent process returns success.
int print_error(const ErrorReport& error, Exit exit, bool json, const std::string& suggestion = "") {
  if (is_silent()) return static_cast<int>(Exit::success);
  wipe_line();
  say("evenkeel: {}", to_text(error, suggestion));
  if (!json || stdout_failed()) return static_cast<int>(exit);
  try {
    print_text(to_json(error, suggestion));
    require_printed();
  } catch (const std::exception&) {  // stdout cannot be written: the exit status still reports the error
  }
  return static_cast<int>(exit);
}

// The command-line option that sets this argument of the library, or empty.
std::string option_of(std::string argument, const CLI::App* subcommand) {
  if (argument == kCommandLine) return argument;
  if (subcommand == nullptr) return "";
  if (argument == "output") return "output";  // some subcommands have it as a positional
  // A positional is named as in --help.
  if (subcommand->get_option_no_throw(argument) != nullptr) return argument;
  std::ranges::replace(argument, '_', '-');
  if (!argument.starts_with("--")) argument.insert(0, "--");
  return subcommand->get_option_no_throw(argument) == nullptr ? "" : argument;
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word.starts_with('-');
}

// Words that CLI11 did not expect, in the order typed. If CLI11 reports another error, such as a missing
// argument, they matter only if one of them is an unknown option, the likely cause; otherwise returns none.
std::vector<std::string> unexpected(const CLI::ParseError& error, const CLI::App& app) {
  std::vector<std::string> words = app.remaining();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return words;
  if (std::ranges::none_of(words, is_option)) words.clear();
  return words;
}

// The known option that the user probably meant: takes the first unknown option that is close to a known one,
// and returns the closest known one. Empty if there is none.
std::string meant_option(const std::vector<std::string>& words, const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const std::string& word : words)
    if (word.starts_with("--"))
      if (const std::string found = nearest(word.substr(0, word.find('=')), names); !found.empty())
        return found;
  return "";
}

Exit exit_of(const Error& error) {
  if (error.type() == "ParseError") return Exit::input;
  if (error.type() == "CommError") return Exit::communication;
  return Exit::impossible;
}

}  // namespace

int report(const Error& error, const CLI::App* subcommand, bool json) {
  const std::string argument = text_of(error, "argument");
  const std::string option = argument.empty() ? "" : option_of(argument, subcommand);
  ErrorReport shown{error.type(), error.what(), error.data()};
  if (option.empty()) return print_error(shown, exit_of(error), json);

  // Uses the option's name as typed: "--min-segment: ..." rather than "min_segment: ...".
  shown.message.replace(0, argument.size(), option);
  for (Error::Field& field : shown.data)
    if (field.name == "argument") field.value = option;
  return print_error(shown, Exit::usage, json, suggested_word(error));
}

int report_usage(const CLI::ParseError& error, const CLI::App& command, const CLI::App* subcommand,
                 bool json) {
  const CLI::App& app = subcommand == nullptr ? command : *subcommand;
  const std::string help = subcommand == nullptr
                               ? "what evenkeel --help lists"
                               : fmt::format("what evenkeel {} --help lists", subcommand->get_name());
  const std::vector<std::string> words = unexpected(error, app);
  const InvalidArgument usage(
      kCommandLine,
      words.empty() ? one_line(error.what()) : fmt::format("'{}' not expected", fmt::join(words, "', '")),
      help);
  return print_error({usage.type(), usage.what(), usage.data()}, Exit::usage, json, meant_option(words, app));
}

int report_other(const std::exception& error, bool json) {
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return print_error({"Error", memory ? "the machine has not enough memory for this" : error.what()},
                     Exit::impossible, json);
}

}  // namespace evenkeel::cli
