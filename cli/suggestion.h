// The word that an unknown word was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/base/error.h"

namespace evenkeel::cli {

// The candidate that is nearest to the word: one that it is the begin of, or that few typing errors lie
// between; empty where none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// Of an error that quotes a word and lists what would be allowed.
std::string suggestion_for(const Error& error);

}  // namespace evenkeel::cli
