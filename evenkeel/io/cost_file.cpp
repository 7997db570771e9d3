#include "evenkeel/io/cost_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::string_view kFormat = "evenkeel.cost.v2";
// The old format has one link rate, no latencies and no inner dimensions.
constexpr std::string_view kOldFormat = "evenkeel.cost.v1";
constexpr std::string_view kOldNumbers[] = {"flops_per_second", "weight_bytes_per_second", "overlap",
                                            "link_bytes_per_second", "chunk_seconds"};

std::vector<MachineNumber> numbers_of(bool is_old) {
  std::vector<MachineNumber> numbers;
  for (const MachineNumber& number : machine_numbers())
    if (!is_old || std::ranges::find(kOldNumbers, number.name) != std::end(kOldNumbers))
      numbers.push_back(number);
  return numbers;
}

void require_cost_keys(const JsonField& json, const std::vector<MachineNumber>& numbers) {
  for (const auto& [key, value] : json->items()) {
    std::vector<std::string> known = {"format", "measured_on"};
    for (const MachineNumber& number : numbers) known.emplace_back(number.name);
    if (std::ranges::find(known, key) == known.end())
      json[key].fail("is not a key of a cost file; known: {}", fmt::join(known, ", "));
  }
}

bool is_old_format(const JsonField& json) {
  const auto format = json.find("format");
  if (format && **format == kOldFormat) return true;
  if (format && **format == kFormat) return false;
  throw parse_error(json.file(), "format", "is {}, not \"{}\"; evenkeel bench --calibrate writes such a file",
                    format ? (*format)->dump() : "missing", kFormat);
}

}  // namespace

Machine read_cost(const ByteSource& source) {
  const JsonDocument document = read_json(source);
  const JsonField json(document, source.name());
  if (!json->is_object()) json.fail("is a JSON {}, not an object", json->type_name());
  const bool is_old = is_old_format(json);
  const std::vector<MachineNumber> numbers = numbers_of(is_old);
  require_cost_keys(json, numbers);
  Machine machine;
  for (const MachineNumber& number : numbers) {
    // The oldest files have no overlap.
    if (is_old && number.value == &Machine::overlap && !json.find(number.name)) continue;
    const JsonField field = json[number.name];
    const double value = field.number();
    if (!number.allows(value)) field.fail("is {}; allowed: {}", value, number.allowed());
    machine.*number.value = value;
  }
  if (is_old) machine.nic_bytes_per_second = machine.link_bytes_per_second;
  return machine;
}

void write_cost(const Machine& machine, const MeasuredOn& on, const std::string& path) {
  nlohmann::ordered_json json = {{"format", kFormat}};
  for (const MachineNumber& number : machine_numbers()) json[number.name] = machine.*number.value;
  json["measured_on"] = {{"cpu", on.cpu}, {"cores", on.cores}, {"ranks", on.ranks}, {"layer", on.layer}};
  write_file(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace evenkeel
