// Text that came from a file or a command line, made fit to be shown to a person: it may hold whatever a name
// may hold, and a terminal obeys some of that.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace evenkeel {

// `text` with every character that is not visible as an escape: \n, \t, \x1b, \u009b. Those are control
// characters, bytes that are not UTF-8, and the marks that turn the direction of writing round. Text that has
// none stays as it is, so a second call changes nothing.
std::string printable(std::string_view text);
// As above with whole lines kept: \n stays.
std::string printable_lines(std::string_view text);

// A text that takes more than `most_bytes` without its middle: "..." stands there. No character is cut
// through.
std::string shortened(std::string_view text, std::size_t most_bytes);

}  // namespace evenkeel
