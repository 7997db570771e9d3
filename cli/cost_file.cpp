#include "cli/cost_file.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"

namespace evenkeel::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "evenkeel.cost.v1";
constexpr std::int64_t kMostBytes = 1 << 20;

using Number = double CostModel::*;
constexpr std::array<std::pair<const char*, Number>, 5> kNumbers = {
    {{"flops_per_second", &CostModel::flops_per_second},
     {"weight_bytes_per_second", &CostModel::weight_bytes_per_second},
     {"overlap", &CostModel::overlap},
     {"link_bytes_per_second", &CostModel::link_bytes_per_second},
     {"chunk_seconds", &CostModel::chunk_seconds}}};

Json parse(const ByteSource& source) {
  if (source.size() > kMostBytes)
    throw ParseError(source.name(), "", fmt::format("has {} bytes; a file of costs is short", source.size()));
  std::string text(static_cast<std::size_t>(source.size()), '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  std::set<std::string> keys;
  const auto refuse_twice = [&](int depth, Json::parse_event_t event, Json& parsed) {
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

struct Allowed {
  bool holds;
  const char* words;
};
Allowed allowed(const std::string& key, double value) {
  if (key == "overlap") return {value >= 0 && value <= 1, "0..1"};
  if (key.ends_with("seconds")) return {value > 0 && value <= CostModel::kMostSeconds, "above 0, to 1e6"};
  return {value >= CostModel::kLeastRate && value <= CostModel::kMostRate, "1..1e30"};
}

// Files of before there was an overlap were fitted without one.
double number(const Json& json, const std::string& key, const std::string& file) {
  const auto found = json.find(key);
  if (found == json.end() && key == "overlap") return CostModel{}.overlap;
  if (found == json.end()) throw ParseError(file, key, "is missing");
  if (!found->is_number())
    throw ParseError(file, key, fmt::format("is a JSON {}, not a number", found->type_name()));
  const double value = found->get<double>();
  if (const auto [holds, words] = allowed(key, value); !holds)
    throw ParseError(file, key, fmt::format("is {}; allowed: {}", value, words));
  return value;
}

void require_known_keys(const Json& json, const std::string& file) {
  for (const auto& [key, value] : json.items()) {
    bool known = key == "format" || key == "measured_on";
    for (const auto& [name, field] : kNumbers) known = known || key == name;
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
  for (const auto& [name, field] : kNumbers) cost.*field = number(json, name, file);
  return cost;
}

void write_cost(const CostModel& cost, const MeasuredOn& on, const std::string& path) {
  Json json = {{"format", kFormat}};
  for (const auto& [name, field] : kNumbers) json[name] = cost.*field;
  json["measured_on"] = {{"cpu", on.cpu}, {"cores", on.cores}, {"ranks", on.ranks}, {"layer", on.layer}};
  AtomicFile out(path);
  out.write(json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  out.commit();
}

}  // namespace evenkeel::cli
