// Reports `evenkeel memory --serve`: what a device holds while it serves a model, and with which routing the
// model fits.
#pragma once

#include <cstdint>
#include <string>

#include "evenkeel/report/html.h"
#include "evenkeel/serving_memory/serving.h"

namespace evenkeel {

struct ServingReport {
  const ServingModel& serving;
  ServingFit fit;
  std::int64_t available_bytes = 0;  // alpha times the device's bytes
  std::int64_t device_bytes = 0;
  std::string device_name = {};        // name of a preset; empty if none
  std::int64_t ratio_thousandths = 0;  // alpha
};

std::string to_text(const ServingReport& report);
std::string to_json(const ServingReport& report);
std::string to_html(const ServingReport& report, const PageOrigin& origin);
// Throws Infeasible if a stage does not fit with the judged routing. The error says by how much, and what
// would fit.
void require_fit(const ServingReport& report);

}  // namespace evenkeel
