// Formats an error: for people as one line, for programs as {"error": {"type", "message", and the error's own
// data}}.
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

// Replaces line ends and tabs.
std::string one_line(std::string text);
// The error's message on one printable line. `suggestion`, if not empty, is the word that was probably meant.
std::string to_text(const ErrorReport& error, const std::string& suggestion = "");
std::string to_json(const ErrorReport& error, const std::string& suggestion = "");

// A field of the error's data; empty if there is none of that name.
std::string text_of(const Error& error, std::string_view name);
// For an error that quotes a word and lists the allowed words: the allowed word nearest to it; empty if none
// is near.
std::string suggested_word(const Error& error);

}  // namespace evenkeel
