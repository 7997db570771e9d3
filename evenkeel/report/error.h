// How an error is shown: as one line, and to programs as {"error": {"type", "message", and its own data}}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/base/error.h"

namespace evenkeel {

struct ErrorReport {
  std::string type;
  std::string message;
  std::vector<Error::Field> data = {};
};

// Without ends of lines and tabs.
std::string one_line(std::string text);
// The message on one line and visible, with the word that was probably meant, if there is one.
std::string to_text(const ErrorReport& error, const std::string& meant = "");
std::string to_json(const ErrorReport& error, const std::string& meant = "");

// One of the error's data, or nothing.
std::string text_of(const Error& error, std::string_view name);
// Of an error that quotes a word and lists what would be allowed; empty where none is near.
std::string meant_word(const Error& error);

}  // namespace evenkeel
