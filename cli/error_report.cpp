#include "cli/error_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <variant>

#include "cli/progress.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return text;
}

int print(const std::string& type, const std::string& message, const std::vector<Error::Field>& data,
          Exit exit, bool json) {
  const std::string line = one_line(message);
  wipe_line();
  fmt::print(stderr, "evenkeel: {}\n", line);
  if (json) {
    Json error = {{"type", type}, {"message", line}};
    for (const Error::Field& field : data)
      std::visit([&](const auto& value) { error[field.name] = value; }, field.value);
    fmt::print("{}\n", Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return static_cast<int>(exit);
}

std::string argument_of(const Error& error) {
  for (const Error::Field& field : error.data())
    if (field.name == "argument")
      if (const auto* name = std::get_if<std::string>(&field.value)) return *name;
  return "";
}

// The option that an argument of the library is set by, or nothing.
std::string option_of(std::string argument, const CLI::App* subcommand) {
  if (argument == kCommandLine) return argument;
  if (subcommand == nullptr) return "";
  if (argument == "output") return "output";  // a positional of some
  std::ranges::replace(argument, '_', '-');
  if (!argument.starts_with("--")) argument.insert(0, "--");
  return subcommand->get_option_no_throw(argument) == nullptr ? "" : argument;
}

// CLI11 lists what it did not expect in no order that was typed.
std::string why_of(const CLI::ParseError& error, const CLI::App* subcommand) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || subcommand == nullptr)
    return one_line(error.what());
  std::vector<std::string> quoted;
  for (const std::string& word : subcommand->remaining()) quoted.push_back(fmt::format("'{}'", word));
  return fmt::format("{} not expected", fmt::join(quoted, ", "));
}

Exit exit_of(const Error& error) {
  if (error.type() == "ParseError") return Exit::input;
  if (error.type() == "CommError") return Exit::communication;
  return Exit::impossible;
}

}  // namespace

int report(const Error& error, const CLI::App* subcommand, bool json) {
  const std::string argument = argument_of(error);
  const std::string option = argument.empty() ? "" : option_of(argument, subcommand);
  if (option.empty()) return print(error.type(), error.what(), error.data(), exit_of(error), json);

  // Said in the words that were typed: "--min-segment: ..." rather than "min_segment: ...".
  const std::string rest = std::string(error.what()).substr(argument.size());
  std::vector<Error::Field> data = error.data();
  for (Error::Field& field : data)
    if (field.name == "argument") field.value = option;
  return print(error.type(), option + rest, data, Exit::usage, json);
}

int report_usage(const CLI::ParseError& error, const CLI::App* subcommand, bool json) {
  const std::string help = subcommand == nullptr
                               ? "what evenkeel --help lists"
                               : fmt::format("what evenkeel {} --help lists", subcommand->get_name());
  const InvalidArgument usage(kCommandLine, why_of(error, subcommand), help);
  return print(usage.type(), usage.what(), usage.data(), Exit::usage, json);
}

int report_other(const std::exception& error, bool json) {
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return print("Error", memory ? "the machine has not enough memory for this" : error.what(), {},
               Exit::impossible, json);
}

}  // namespace evenkeel::cli
