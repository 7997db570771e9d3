// Pages of results (docs/pages.md). Each result has to_html() beside to_text() and to_json().
#pragma once

#include <string>

namespace evenkeel {

// How a page was made.
struct PageOrigin {
  std::string command;    // the command line that made it
  std::string made_with;  // "evenkeel 0.1.0"
};

// Throws Unsupported if this build has no pages. Call it before long work.
void require_pages();

}  // namespace evenkeel
