// Text for a terminal whose characters may not be UTF-8.
#pragma once

#include <string>

namespace evenkeel {

// Converts text that went through printable(). If the locale's characters are not UTF-8, the result is ASCII:
// pictures keep their columns, and other characters are escaped.
std::string in_this_locale(std::string text);

}  // namespace evenkeel
