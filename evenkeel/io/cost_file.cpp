#include "evenkeel/io/cost_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel {

using namespace internal;

namespace {

using CostJson = nlohmann::ordered_json;

constexpr std::string_view kCostFormat = "evenkeel.cost.v1";
// The parser's time grows as the square of the objects in a file.
constexpr std::int64_t kMostCostBytes = 1 << 14;
constexpr int kMostCostDepth = 16;

struct AllowedCost {
  bool (*holds)(double value);
  const char* words;
};
constexpr AllowedCost kRate = {
    [](double v) { return v >= CostModel::kLeastRate && v <= CostModel::kMostRate; }, "1..1e30"};
constexpr AllowedCost kShare = {[](double v) { return v >= 0 && v <= 1; }, "0..1"};
constexpr AllowedCost kSeconds = {[](double v) { return v > 0 && v <= CostModel::kMostSeconds; },
                                  "above 0, to 1e6"};

struct CostNumber {
  const char* key;
  double CostModel::*field;
  AllowedCost allowed;
  bool is_optional = false;  // the model's own where there is none
};
constexpr CostNumber kCostNumbers[] = {
    {"flops_per_second", &CostModel::flops_per_second, kRate},
    {"weight_bytes_per_second", &CostModel::weight_bytes_per_second, kRate},
    // Files of before there was an overlap were fitted without one.
    {"overlap", &CostModel::overlap, kShare, true},
    {"link_bytes_per_second", &CostModel::link_bytes_per_second, kRate},
    {"chunk_seconds", &CostModel::chunk_seconds, kSeconds}};

CostJson parse_cost(const ByteSource& source) {
  if (source.size() > kMostCostBytes)
    throw parse_error(source.name(), "", "has {} bytes; a file of costs is short", source.size());
  std::string text(static_cast<std::size_t>(source.size()), '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  // The parser would take a NUL for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string::npos)
    throw ParseError(source.name(), fmt::format("byte {}", nul), "is a NUL, which no JSON has");
  std::set<std::string> keys;
  const auto refuse_twice = [&](int depth, CostJson::parse_event_t event, CostJson& parsed) {
    if (depth > kMostCostDepth) throw parse_error(source.name(), "", "nested deeper than {}", kMostCostDepth);
    if (depth == 1 && event == CostJson::parse_event_t::key && !keys.insert(parsed.get<std::string>()).second)
      throw ParseError(source.name(), parsed.get<std::string>(), "is given twice");
    return true;
  };
  try {
    return CostJson::parse(text, refuse_twice);
  } catch (const CostJson::parse_error& error) {
    throw ParseError(source.name(), fmt::format("byte {}", error.byte), "is not JSON");
  } catch (const CostJson::exception& error) {
    throw parse_error(source.name(), "", "is not JSON that can be read: {}", error.what());
  }
}

void read_cost_number(const CostJson& json, const CostNumber& number, const std::string& file,
                      CostModel& cost) {
  const auto found = json.find(number.key);
  if (found == json.end() && number.is_optional) return;
  if (found == json.end()) throw ParseError(file, number.key, "is missing");
  if (!found->is_number())
    throw parse_error(file, number.key, "is a JSON {}, not a number", found->type_name());
  const double value = found->get<double>();
  if (!number.allowed.holds(value))
    throw parse_error(file, number.key, "is {}; allowed: {}", value, number.allowed.words);
  cost.*number.field = value;
}

void require_cost_keys(const CostJson& json, const std::string& file) {
  for (const auto& [key, value] : json.items()) {
    bool known = key == "format" || key == "measured_on";
    for (const CostNumber& number : kCostNumbers) known = known || key == number.key;
    if (!known) throw ParseError(file, key, "is no key of a file of costs");
  }
}

}  // namespace

CostModel read_cost(const ByteSource& source) {
  const std::string& file = source.name();
  const CostJson json = parse_cost(source);
  if (!json.is_object()) throw parse_error(file, "", "is a JSON {}, not an object", json.type_name());
  const auto format = json.find("format");
  if (format == json.end() || *format != kCostFormat)
    throw parse_error(file, "format", "is {}, not \"{}\"; evenkeel bench --calibrate writes such a file",
                      format == json.end() ? "missing" : format->dump(), kCostFormat);
  require_cost_keys(json, file);
  CostModel cost;
  for (const CostNumber& number : kCostNumbers) read_cost_number(json, number, file, cost);
  return cost;
}

void write_cost(const CostModel& cost, const MeasuredOn& on, const std::string& path) {
  CostJson json = {{"format", kCostFormat}};
  for (const CostNumber& number : kCostNumbers) json[number.key] = cost.*number.field;
  json["measured_on"] = {{"cpu", on.cpu}, {"cores", on.cores}, {"ranks", on.ranks}, {"layer", on.layer}};
  write_file(path, json.dump(1, ' ', false, CostJson::error_handler_t::replace) + "\n");
}

}  // namespace evenkeel
