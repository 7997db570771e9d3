// Whether a placement pays against what runs now, as `place` and `evaluate` show it.
#pragma once

#include "evenkeel/placement/evaluate/verdict.h"
#include "evenkeel/report/internal/json.h"
#include "evenkeel/report/internal/page.h"

namespace evenkeel::internal {

Json json_of(const Verdict& verdict);
void put_verdict(Page& page, const Verdict& verdict);

}  // namespace evenkeel::internal
