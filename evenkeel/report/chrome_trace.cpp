#include "evenkeel/report/chrome_trace.h"

#include <cmath>

#include "evenkeel/report/internal/json.h"

namespace evenkeel {

namespace {

using internal::Json;

Json json_of(const ChromeTrace::Args& args) {
  Json json = Json::object();
  for (const auto& [name, value] : args) std::visit([&](const auto& known) { json[name] = known; }, value);
  return json;
}

double microseconds(double seconds) {
  return std::round(seconds * 8e6) / 8;
}

class EventWriter {
 public:
  explicit EventWriter(const ChromeTrace& trace) {
    for (const ChromeTrace::Process& process : trace.processes) {
      pids_.push_back(next_);
      next_ += process.threads.size();
    }
  }

  void write(std::size_t place, const ChromeTrace::Process& process) {
    put_name("process", process.name, place, 0, place);
    for (std::size_t thread = 0; thread < process.threads.size(); ++thread)
      put_name("thread", process.threads[thread], place, thread, thread);
  }
  void write(const ChromeTrace::Slice& slice) {
    Json event = {{"name", slice.name}, {"cat", slice.category}, {"ph", "X"}};
    put_point(event, {slice.process, slice.thread, slice.begin});
    event["dur"] = microseconds(slice.end) - microseconds(slice.begin);
    if (slice.cpu_seconds) event["tdur"] = 1e6 * *slice.cpu_seconds;
    if (!slice.args.empty()) event["args"] = json_of(slice.args);
    put(event);
  }
  void write(std::size_t id, const ChromeTrace::Flow& flow) {
    Json start = {{"name", flow.name}, {"cat", flow.category}, {"ph", "s"}, {"id", id}};
    put_point(start, flow.from);
    put(start);
    Json finish = {{"name", flow.name}, {"cat", flow.category}, {"ph", "f"}, {"id", id}, {"bp", "e"}};
    put_point(finish, flow.to);
    put(finish);
  }
  void write(const ChromeTrace::Counter& counter) {
    Json event = {{"name", counter.name}, {"ph", "C"}};
    put_point(event, {counter.process, 0, counter.seconds});
    event["args"] = {{"bytes", counter.bytes}};
    put(event);
  }
  std::string text() && { return std::move(text_); }

 private:
  void put_name(const std::string& kind, const std::string& name, std::size_t process, std::size_t thread,
                std::size_t order) {
    Json event = {{"name", kind + "_name"}, {"ph", "M"}};
    put_thread(event, process, thread);
    event["args"] = {{"name", name}};
    put(event);
    event["name"] = kind + "_sort_index";
    event["args"] = {{"sort_index", order}};
    put(event);
  }
  void put_point(Json& event, const ChromeTrace::Point& point) const {
    put_thread(event, point.process, point.thread);
    event["ts"] = microseconds(point.seconds);
  }
  void put_thread(Json& event, std::size_t process, std::size_t thread) const {
    event["pid"] = pids_[process];
    event["tid"] = pids_[process] + thread;
  }
  void put(const Json& event) { text_ += (text_.empty() ? "" : ",") + internal::line_of(event); }

  std::vector<std::size_t> pids_;
  std::size_t next_ = 1;  // Process 0 is the idle process. Perfetto looks up names by thread id alone.
  std::string text_;
};

}  // namespace

std::string to_chrome_trace(const ChromeTrace& trace) {
  EventWriter events(trace);
  for (std::size_t i = 0; i < trace.processes.size(); ++i) events.write(i, trace.processes[i]);
  // Slices come first, so that an arrow belongs to the slice that begins at the arrow's time, not to the
  // slice that ends there.
  for (const ChromeTrace::Slice& slice : trace.slices) events.write(slice);
  for (std::size_t i = 0; i < trace.flows.size(); ++i) events.write(i, trace.flows[i]);
  for (const ChromeTrace::Counter& counter : trace.counters) events.write(counter);
  return "{\"displayTimeUnit\":\"ms\",\"otherData\":" + internal::line_of(json_of(trace.about)) +
         ",\"traceEvents\":[\n" + std::move(events).text() + "]}\n";
}

}  // namespace evenkeel
