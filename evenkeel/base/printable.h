// Text that came from a file or a command line, made fit to be shown to a person: it may hold whatever a name
// may hold, and a terminal obeys some of that.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace evenkeel {

// What is no visible character, as an escape: \n, \t, \x1b, \u009b. So control characters, bytes that are not
// UTF-8, and the marks that turn the direction of writing round. Text that has none stays as it is, and what
// comes out stays as it is the second time.
std::string printable(std::string_view text);
// The same with whole lines kept: \n stays.
std::string printable_lines(std::string_view text);

// A text that takes more than `most_bytes` without its middle: "..." stands there. No character is cut
// through.
std::string shortened(std::string_view text, std::size_t most_bytes);

}  // namespace evenkeel
