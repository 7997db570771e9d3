// Makes text from a file or a command line safe to show. Such text may hold control characters, which a
// terminal would obey.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace evenkeel {

// `text` with every invisible character escaped: \n, \t, \x1b, \u009b. Invisible are control characters, line
// separators, bytes that are not UTF-8, and marks that change the direction of writing. Text without them
// stays as it is, so a second call changes nothing.
std::string printable(std::string_view text);
// As printable(), but \n stays.
std::string printable_lines(std::string_view text);

// Shortens a text of more than `most_bytes`: "..." replaces its middle. Never cuts a character in two.
std::string shortened(std::string_view text, std::size_t most_bytes);

}  // namespace evenkeel
