// Text, JSON and pages for measured experiments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "evenkeel/report/chrome_trace.h"
#include "evenkeel/report/html.h"
#include "evenkeel/study/accuracy.h"
#include "evenkeel/study/calibration.h"
#include "evenkeel/study/curve.h"
#include "evenkeel/study/demo.h"
#include "evenkeel/study/series.h"

namespace evenkeel {

// One layer and one batch, under several planners.
struct RunReport {
  ExperimentSetup setup;
  std::optional<std::int64_t> layer;     // the layer's number in the trace or the placement
  std::optional<std::string> placement;  // the file that gives the homes
  std::string batch;
  std::int64_t tokens = 0;
  CheckedFigures checked;
  std::map<std::string, std::string> axes = {};  // how an unnamed trace was read, by file
  std::optional<std::string> timeline = {};      // the file written from timeline_of()
};
std::string to_text(const RunReport& report);
std::string to_json(const RunReport& report);
// The last measured step under each planner. The set-up must have asked for timelines.
ChromeTrace timeline_of(const RunReport& report);
std::string to_html(const RunReport& report, const PageOrigin& origin);

std::string to_text(const Series& series);
std::string to_json(const Series& series);
std::string to_html(const Series& series, const PageOrigin& origin);

std::string to_text(const Curves& curves);
std::string to_json(const Curves& curves);
std::string to_html(const Curves& curves, const PageOrigin& origin);

struct CalibrationReport {
  Calibration calibration;
  std::string file;  // the file that was written
};
std::string to_text(const CalibrationReport& report);
std::string to_json(const CalibrationReport& report);

std::string to_text(const Demo& demo);

}  // namespace evenkeel
