// A timeline as trace events in Chrome's JSON object format, which ui.perfetto.dev and chrome://tracing open.
//
// Rows       A process for each rank, in their order: one row for each of its threads, and its counters.
// Times      Seconds, 0 or more. They are written in microseconds, rounded to eighths: an eighth is exact in
//            binary, so that slices which touch do so after a reader's arithmetic, too.
// Slices     Those of one thread nest or do not overlap; the outer one comes first.
// Flows      Arrows from one slice to another: of two that touch at an arrow's end, the later one. Perfetto
//            turns an arrow round whose second slice begins before the first.
// Source     "Trace Event Format" (Google), of which M, X, s, f and C are used.
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
  // Processes and threads are named by their places.
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
  // The value from `seconds` on.
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
  Args about = {};  // the trace as a whole
};

// One event a line, in ASCII.
std::string to_chrome_trace(const ChromeTrace& trace);

}  // namespace evenkeel
