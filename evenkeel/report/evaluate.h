// Reports `evenkeel evaluate`: how level placements are on recordings, and whether switching to the most
// level one pays.
#pragma once

#include <string>

#include "evenkeel/placement/evaluate/verdict.h"
#include "evenkeel/report/html.h"

namespace evenkeel {

std::string to_text(const Evaluation& evaluation);
std::string to_json(const Evaluation& evaluation);
// The page of the placement that the verdict is about, compared with the current one.
std::string to_html(const Evaluation& evaluation, const Topology& topology, const PageOrigin& origin);
// The verdict alone, as in to_json(Evaluation).
std::string to_json(const Verdict& verdict);

}  // namespace evenkeel
