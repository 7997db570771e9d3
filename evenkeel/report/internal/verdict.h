// Whether changing to a placement from the current one pays, as shown by `place` and `evaluate`.
#pragma once

#include "evenkeel/placement/evaluate/verdict.h"
#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/page.h"

namespace evenkeel::internal {

Json json_of(const Verdict& verdict);
void put_verdict(Page& page, const Verdict& verdict);
// The verdict as a section of a page, followed by the tiles in `more`.
Json verdict_section(const Verdict& verdict, const std::string& id, const std::string& title,
                     const Json& tiles = Json::array());

}  // namespace evenkeel::internal
