// The result of `evenkeel memory --serve`: what a device holds while a model is served, and at which routing
// it fits.
#pragma once

#include <cstdint>
#include <string>

#include "evenkeel/report/html.h"
#include "evenkeel/serving_memory/serving.h"

namespace evenkeel {

struct ServingReport {
  const ServingModel& serving;
  ServingFit fit;
  std::int64_t available_bytes = 0;  // alpha times those of the device
  std::int64_t device_bytes = 0;
  std::string device_name = {};        // a preset's, or empty
  std::int64_t ratio_thousandths = 0;  // alpha
};

std::string to_text(const ServingReport& report);
std::string to_json(const ServingReport& report);
std::string to_html(const ServingReport& report, const PageOrigin& origin);
// Throws Infeasible where a stage does not fit with the judged routing: by how much, and what would.
void require_fit(const ServingReport& report);

}  // namespace evenkeel
