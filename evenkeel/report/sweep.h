// Reports `evenkeel compare --over`: for which values of a setting each method pays.
#pragma once

#include <string>

#include "evenkeel/report/html.h"
#include "evenkeel/sim/sweep.h"

namespace evenkeel {

std::string to_text(const Sweep& sweep);
// Includes the full comparison for each value.
std::string to_json(const Sweep& sweep);
std::string to_html(const Sweep& sweep, const PageOrigin& origin);

}  // namespace evenkeel
