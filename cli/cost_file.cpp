#include "cli/cost_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "evenkeel.cost.v1";
// The parser's time grows as the square of the objects in a file.
constexpr std::int64_t kMostBytes = 1 << 14;
constexpr int kMostDepth = 16;

struct Allowed {
  bool (*holds)(double value);
  const char* words;
};
constexpr Allowed kRate = {[](double v) { return v >= CostModel::kLeastRate && v <= CostModel::kMostRate; },
                           "1..1e30"};
constexpr Allowed kShare = {[](double v) { return v >= 0 && v <= 1; }, "0..1"};
constexpr Allowed kSeconds = {[](double v) { return v > 0 && v <= CostModel::kMostSeconds; },
                              "above 0, to 1e6"};

struct Number {
  const char* key;
  double CostModel::*field;
  Allowed allowed;
  bool is_optional = false;  // the model's own where there is none
};
constexpr Number kNumbers[] = {{"flops_per_second", &CostModel::flops_per_second, kRate},
                               {"weight_bytes_per_second", &CostModel::weight_bytes_per_second, kRate},
                               // Files of before there was an overlap were fitted without one.
                               {"overlap", &CostModel::overlap, kShare, true},
                               {"link_bytes_per_second", &CostModel::link_bytes_per_second, kRate},
                               {"chunk_seconds", &CostModel::chunk_seconds, kSeconds}};

Json parse(const ByteSource& source) {
  if (source.size() > kMostBytes)
    throw ParseError(source.name(), "", fmt::format("has {} bytes; a file of costs is short", source.size()));
  std::string text(static_cast<std::size_t>(source.size()), '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  // The parser would take a NUL for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string::npos)
    throw ParseError(source.name(), fmt::format("byte {}", nul), "is a NUL, which no JSON has");
  std::set<std::string> keys;
  const auto refuse_twice = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMostDepth)
      throw ParseError(source.name(), "", fmt::format("nested deeper than {}", kMostDepth));
    if (depth == 1 && event == Json::parse_event_t::key && !keys.insert(parsed.get<std::string>()).second)
      throw ParseError(source.name(), parsed.get<std::string>(), "is given twice");
    return true;
  };
  try {
    return Json::parse(text, refuse_twice);
  } catch (const Json::parse_error& error) {
    throw ParseError(source.name(), fmt::format("byte {}", error.byte), "is not JSON");
  } catch (const Json::exception& error) {
    throw ParseError(source.name(), "", fmt::format("is not JSON that can be read: {}", error.what()));
  }
}

void read_number(const Json& json, const Number& number, const std::string& file, CostModel& cost) {
  const auto found = json.find(number.key);
  if (found == json.end() && number.is_optional) return;
  if (found == json.end()) throw ParseError(file, number.key, "is missing");
  if (!found->is_number())
    throw ParseError(file, number.key, fmt::format("is a JSON {}, not a number", found->type_name()));
  const double value = found->get<double>();
  if (!number.allowed.holds(value))
    throw ParseError(file, number.key, fmt::format("is {}; allowed: {}", value, number.allowed.words));
  cost.*number.field = value;
}

void require_known_keys(const Json& json, const std::string& file) {
  for (const auto& [key, value] : json.items()) {
    bool known = key == "format" || key == "measured_on";
    for (const Number& number : kNumbers) known = known || key == number.key;
    if (!known) throw ParseError(file, key, "is no key of a file of costs");
  }
}

}  // namespace

CostModel read_cost(const std::string& path) {
  return read_cost(*open_source(path));
}

CostModel read_cost(const ByteSource& source) {
  const std::string& file = source.name();
  const Json json = parse(source);
  if (!json.is_object())
    throw ParseError(file, "", fmt::format("is a JSON {}, not an object", json.type_name()));
  const auto format = json.find("format");
  if (format == json.end() || *format != kFormat)
    throw ParseError(file, "format",
                     fmt::format("is {}, not \"{}\"; evenkeel bench --calibrate writes such a file",
                                 format == json.end() ? "missing" : format->dump(), kFormat));
  require_known_keys(json, file);
  CostModel cost;
  for (const Number& number : kNumbers) read_number(json, number, file, cost);
  return cost;
}

void write_cost(const CostModel& cost, const MeasuredOn& on, const std::string& path) {
  Json json = {{"format", kFormat}};
  for (const Number& number : kNumbers) json[number.key] = cost.*number.field;
  json["measured_on"] = {{"cpu", on.cpu}, {"cores", on.cores}, {"ranks", on.ranks}, {"layer", on.layer}};
  AtomicFile out(path);
  out.write(json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  out.commit();
}

}  // namespace evenkeel::cli
