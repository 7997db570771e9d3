// A Chrome trace has the event fields that the format requires, and reads back as the data it was made of.
#include "evenkeel/report/chrome_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace evenkeel {
namespace {

using Json = nlohmann::json;

Json read_back(const ChromeTrace& trace) {
  return Json::parse(to_chrome_trace(trace));
}

std::vector<Json> events(const ChromeTrace& trace, const std::string& ph) {
  std::vector<Json> of_kind;
  const Json all = read_back(trace);
  std::ranges::copy_if(all["traceEvents"], std::back_inserter(of_kind),
                       [&](const Json& event) { return event["ph"] == ph; });
  return of_kind;
}

ChromeTrace two_ranks() {
  return {.processes = {{"rank 0", {"step", "weights"}}, {"rank 1", {"step"}}}};
}

TEST(ChromeTrace, OfNothingIsAnEmptyTrace) {
  EXPECT_EQ(read_back({}), Json::parse(R"({"displayTimeUnit": "ms", "otherData": {}, "traceEvents": []})"));
}

TEST(ChromeTrace, SaysWhatTheWholeIsAbout) {
  const ChromeTrace trace = {.about = {{"steps", std::int64_t{3}}, {"share", 0.5}, {"name", "skewed"}}};
  EXPECT_EQ(read_back(trace)["otherData"], Json::parse(R"({"steps": 3, "share": 0.5, "name": "skewed"})"));
}

TEST(ChromeTrace, NamesAndOrdersProcessesAndThreads) {
  const std::vector<Json> expected = {
      {{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "rank 0"}}}},
      {{"name", "process_sort_index"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"sort_index", 0}}}},
      {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "step"}}}},
      {{"name", "thread_sort_index"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"sort_index", 0}}}},
      {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 2}, {"args", {{"name", "weights"}}}},
      {{"name", "thread_sort_index"}, {"ph", "M"}, {"pid", 1}, {"tid", 2}, {"args", {{"sort_index", 1}}}},
      {{"name", "process_name"}, {"ph", "M"}, {"pid", 3}, {"tid", 3}, {"args", {{"name", "rank 1"}}}},
      {{"name", "process_sort_index"}, {"ph", "M"}, {"pid", 3}, {"tid", 3}, {"args", {{"sort_index", 1}}}},
      {{"name", "thread_name"}, {"ph", "M"}, {"pid", 3}, {"tid", 3}, {"args", {{"name", "step"}}}},
      {{"name", "thread_sort_index"}, {"ph", "M"}, {"pid", 3}, {"tid", 3}, {"args", {{"sort_index", 0}}}}};
  EXPECT_EQ(events(two_ranks(), "M"), expected);
}

TEST(ChromeTrace, WritesSlicesInMicroseconds) {
  ChromeTrace trace = two_ranks();
  trace.slices = {{0, 1, "compute", "phase", 1e-3, 1.5e-3, 2e-4, {{"chunk", std::int64_t{2}}}},
                  {1, 0, "plan", "phase", 0, 2}};
  const std::vector<Json> expected = {
      {{"name", "compute"},
       {"cat", "phase"},
       {"ph", "X"},
       {"pid", 1},
       {"tid", 2},
       {"ts", 1000.0},
       {"dur", 500.0},
       {"tdur", 200.0},
       {"args", {{"chunk", 2}}}},
      {{"name", "plan"}, {"cat", "phase"}, {"ph", "X"}, {"pid", 3}, {"tid", 3}, {"ts", 0.0}, {"dur", 2e6}}};
  EXPECT_EQ(events(trace, "X"), expected);
}

TEST(ChromeTrace, WritesAFlowAsTwoEventsOfOneNameCategoryAndId) {
  ChromeTrace trace = two_ranks();
  trace.flows = {{"expert 5", "weights", {1, 0, 1e-6}, {0, 1, 2e-6}},
                 {"expert 5", "weights", {1, 0, 1e-6}, {0, 0, 3e-6}}};
  std::vector<Json> starts, finishes;
  for (const int id : {0, 1}) {
    starts.push_back(
        {{"name", "expert 5"}, {"cat", "weights"}, {"ph", "s"}, {"id", id}, {"pid", 3}, {"tid", 3}});
    starts.back()["ts"] = 1.0;
    finishes.push_back(
        {{"name", "expert 5"}, {"cat", "weights"}, {"ph", "f"}, {"id", id}, {"bp", "e"}, {"pid", 1}});
    finishes.back()["tid"] = id == 0 ? 2 : 1;
    finishes.back()["ts"] = id == 0 ? 2.0 : 3.0;
  }
  EXPECT_EQ(events(trace, "s"), starts);
  EXPECT_EQ(events(trace, "f"), finishes);
}

// If a flow arrow begins at the same time as a slice, readers attach it to the slice that was written last.
TEST(ChromeTrace, WritesSlicesBeforeTheFlowsThatLieInThem) {
  ChromeTrace trace = two_ranks();
  trace.flows = {{"expert 5", "weights", {0, 0, 0}, {1, 0, 0}}};
  trace.slices = {{0, 0, "transfer", "phase", 0, 1}, {1, 0, "transfer", "phase", 0, 1}};
  std::string order;
  const Json all = read_back(trace);
  for (const Json& event : all["traceEvents"]) order += event["ph"].get<std::string>();
  EXPECT_TRUE(order.ends_with("XXsf")) << order;
}

TEST(ChromeTrace, WritesCountersOfBytes) {
  ChromeTrace trace = two_ranks();
  trace.counters = {{1, "memory", 5e-6, std::int64_t{1} << 60}};
  const Json expected = {{"name", "memory"}, {"ph", "C"}, {"pid", 3}, {"tid", 3}, {"ts", 5.0}};
  ASSERT_EQ(events(trace, "C").size(), 1u);
  Json counter = events(trace, "C").front();
  EXPECT_EQ(counter["args"]["bytes"].get<std::int64_t>(), std::int64_t{1} << 60);
  counter.erase("args");
  EXPECT_EQ(counter, expected);
}

TEST(ChromeTrace, KeepsTextThatNeedsEscaping) {
  const std::string text = "a \"quoted\" \\ name,\n\ttab \x01 \xc3\xa9 \xe2\x82\xac </script>";
  ChromeTrace trace = {.processes = {{text, {text}}}, .about = {{text, text}}};
  trace.slices = {{0, 0, text, text, 0, 1, {}, {{text, text}}}};
  trace.flows = {{text, text, {}, {}}};
  trace.counters = {{0, text}};
  const std::string written = to_chrome_trace(trace);
  EXPECT_TRUE(std::ranges::all_of(written, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
  EXPECT_EQ(read_back(trace)["otherData"], Json({{text, text}}));
  EXPECT_EQ(events(trace, "M").front()["args"]["name"], text);
  EXPECT_EQ(events(trace, "X").front()["args"], Json({{text, text}}));
  for (const char* ph : {"X", "s", "f", "C"}) EXPECT_EQ(events(trace, ph).front()["name"], text);
}

TEST(ChromeTrace, ReplacesTextThatIsNotUtf8) {
  const ChromeTrace trace = {.processes = {{"rank \xff", {"step"}}}};
  EXPECT_EQ(events(trace, "M").front()["args"]["name"], "rank \xef\xbf\xbd");
}

// Perfetto multiplies times by 1000 and truncates them.
TEST(ChromeTrace, KeepsSlicesTouchingThatAReaderRounds) {
  ChromeTrace trace = {.processes = {{"rank 0", {"step"}}}};
  const auto at = [](int i) { return i * 1.234567e-5 + i % 7 * 1e-8; };
  for (int i = 0; i < 1000; ++i) trace.slices.push_back({0, 0, "slice", "phase", at(i), at(i + 1)});
  std::int64_t end = 0;
  for (const Json& slice : events(trace, "X")) {
    const auto begin = static_cast<std::int64_t>(slice["ts"].get<double>() * 1000);
    EXPECT_EQ(begin, end);
    end = begin + static_cast<std::int64_t>(slice["dur"].get<double>() * 1000);
  }
  EXPECT_NEAR(static_cast<double>(end), 1e9 * at(1000), 63);
}

}  // namespace
}  // namespace evenkeel
