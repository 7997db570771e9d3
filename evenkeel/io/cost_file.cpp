#include "evenkeel/io/cost_file.h"

#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::string_view kCostFormat = "evenkeel.cost.v1";

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

void read_cost_number(const JsonField& json, const CostNumber& number, CostModel& cost) {
  if (number.is_optional && !json.find(number.key)) return;
  const JsonField field = json[number.key];
  const double value = field.number();
  if (!number.allowed.holds(value)) field.fail("is {}; allowed: {}", value, number.allowed.words);
  cost.*number.field = value;
}

void require_cost_keys(const JsonField& json) {
  for (const auto& [key, value] : json->items()) {
    bool known = key == "format" || key == "measured_on";
    for (const CostNumber& number : kCostNumbers) known = known || key == number.key;
    if (!known) throw ParseError(json.file(), key, "is no key of a file of costs");
  }
}

}  // namespace

CostModel read_cost(const ByteSource& source) {
  const JsonDocument document = read_json(source);
  const JsonField json(document, source.name());
  if (!json->is_object()) json.fail("is a JSON {}, not an object", json->type_name());
  const auto format = json.find("format");
  if (!format || **format != kCostFormat)
    throw parse_error(json.file(), "format",
                      "is {}, not \"{}\"; evenkeel bench --calibrate writes such a file",
                      format ? (*format)->dump() : "missing", kCostFormat);
  require_cost_keys(json);
  CostModel cost;
  for (const CostNumber& number : kCostNumbers) read_cost_number(json, number, cost);
  return cost;
}

void write_cost(const CostModel& cost, const MeasuredOn& on, const std::string& path) {
  nlohmann::ordered_json json = {{"format", kCostFormat}};
  for (const CostNumber& number : kCostNumbers) json[number.key] = cost.*number.field;
  json["measured_on"] = {{"cpu", on.cpu}, {"cores", on.cores}, {"ranks", on.ranks}, {"layer", on.layer}};
  write_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace evenkeel
