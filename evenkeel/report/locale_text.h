// Text for a terminal whose characters may not be UTF-8.
#pragma once

#include <string>

namespace evenkeel {

// Text that printable() has seen, in ASCII where the locale's characters are not UTF-8: pictures keep their
// columns, and other characters are escapes.
std::string in_this_locale(std::string text);

}  // namespace evenkeel
