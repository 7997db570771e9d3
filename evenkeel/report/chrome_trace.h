// Writes a timeline as trace events in Chrome's JSON object format, which ui.perfetto.dev and
// chrome://tracing open.
//
// Rows      One process per rank, in the order of ranks. It has a row for each of its threads, and its
//           counters.
// Times     Seconds, 0 or more. They are written in microseconds, rounded to eighths. Eighths are exact in
//           binary, so slices that touch still touch after the viewer's arithmetic.
// Slices    Two slices of one thread are nested or do not overlap. The outer one is listed first.
// Flows     Arrows from one slice to another. If two slices touch at an end of an arrow, that end belongs to
//           the later slice. Perfetto reverses an arrow whose second slice begins before the first.
// Source    "Trace Event Format" (Google), of which the event types M, X, s, f and C are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace evenkeel {

struct ChromeTrace {
  using Args = std::vector<std::pair<std::string, std::variant<std::int64_t, double, std::string>>>;

  struct Process {
    std::string name;
    std::vector<std::string> threads;  // at least one
  };
  // Processes and threads are given by index.
  struct Slice {
    std::size_t process = 0;
    std::size_t thread = 0;
    std::string name;
    std::string category;
    double begin = 0;
    double end = 0;
    std::optional<double> cpu_seconds = std::nullopt;
    Args args = {};
  };
  struct Point {
    std::size_t process = 0;
    std::size_t thread = 0;
    double seconds = 0;
  };
  struct Flow {
    std::string name;
    std::string category;
    Point from;
    Point to;  // not before `from`
  };
  // The counter has this value from `seconds` on.
  struct Counter {
    std::size_t process = 0;
    std::string name;
    double seconds = 0;
    std::int64_t bytes = 0;
  };

  std::vector<Process> processes = {};
  std::vector<Slice> slices = {};
  std::vector<Flow> flows = {};
  std::vector<Counter> counters = {};
  Args about = {};  // describes the whole trace
};

// One event per line, in ASCII.
std::string to_chrome_trace(const ChromeTrace& trace);

}  // namespace evenkeel
