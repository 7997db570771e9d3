// Pages of results (docs/pages.md): to_html() stands beside each result's to_text() and to_json().
#pragma once

#include <string>

namespace evenkeel {

// What a page says of itself.
struct PageOrigin {
  std::string command;    // the line that made it
  std::string made_with;  // "evenkeel 0.1.0"
};

// Throws Unsupported where this build has no pages: for whoever would learn it only after long work.
void require_pages();

}  // namespace evenkeel
