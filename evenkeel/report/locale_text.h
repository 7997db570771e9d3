// Text for a terminal that may not use UTF-8.
#pragma once

#include <string>

namespace evenkeel {

// Converts text that already went through printable(). If the locale does not use UTF-8, the result is ASCII:
// pictures keep their width, and other characters are escaped.
std::string in_this_locale(std::string text);

}  // namespace evenkeel
