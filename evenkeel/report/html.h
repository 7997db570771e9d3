// Result pages in HTML (docs/pages.md). Each kind of result has to_html() as well as to_text() and to_json().
#pragma once

#include <string>

namespace evenkeel {

// How a page was made, as written on it.
struct PageOrigin {
  std::string command;    // the command line that made it
  std::string made_with;  // "evenkeel 0.1.0"
};

// Throws Unsupported if this build cannot make pages. Call it before long work.
void require_pages();

}  // namespace evenkeel
