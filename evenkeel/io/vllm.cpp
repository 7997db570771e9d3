#include "evenkeel/io/vllm.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/json_lines.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

namespace {

using internal::Json;
using internal::JsonDocument;
using internal::PhysicalRow;

constexpr const char* record_type = "eplb_initial_mapping";

JsonDocument last_record(const ByteSource& source) {
  std::optional<JsonDocument> last;
  internal::for_each_json_line(source, [&](JsonDocument&& record, std::int64_t line) {
    const std::string file = fmt::format("{}: line {}", source.name(), line);
    if (internal::member(record, "record_type", file) == record_type) last = std::move(record);
  });
  if (!last) throw ParseError(source.name(), "record_type", fmt::format("no line has \"{}\"", record_type));
  return std::move(*last);
}

}  // namespace

void write_vllm_placement(const Placement& placement, const std::string& path) {
  const auto rows = internal::physical_rows(placement, "vLLM");
  const std::size_t num_slots = rows.front().size();
  AtomicFile file(path);
  file.write(
      fmt::format("{{\"record_type\": \"{}\", \"version\": 1, \"num_redundant_experts\": {}, "
                  "\"num_slots\": {}, \"initial_global_assignments\": {{",
                  record_type, num_slots - static_cast<std::size_t>(placement.num_experts()), num_slots));
  for (std::size_t i = 0; i < rows.size(); ++i)
    file.write(fmt::format("{}\"{}\": {}", i > 0 ? ", " : "", i, internal::row_text(rows[i])));
  file.write("}}\n");
  file.commit();
}

Placement read_vllm_placement(const ByteSource& source, const PlacementFormatOptions& options) {
  const std::string& file = source.name();
  const JsonDocument record = last_record(source);
  if (internal::integer(internal::member(record, "version", file), file, "version") != 1)
    throw ParseError(file, "version", "is not 1");
  const auto number = [&](const char* key) {
    return internal::small_integer(internal::member(record, key, file), 0, max_experts, file, key);
  };
  const int num_slots = number("num_slots");
  const int num_experts = num_slots - number("num_redundant_experts");
  if (num_experts < 1) throw ParseError(file, "num_redundant_experts", "leaves no expert");
  const char* key = "initial_global_assignments";
  const Json& assignments = internal::member(record, key, file);
  if (!assignments.is_object()) throw ParseError(file, key, "is not a JSON object of layers");
  std::vector<PhysicalRow> rows;
  std::vector<std::string> keys;
  for (std::size_t layer = 0; layer < assignments.size(); ++layer) {
    const std::string name = std::to_string(layer);
    keys.push_back(fmt::format("{}.{}", key, name));
    const auto row = assignments.find(name);
    if (row == assignments.end()) throw ParseError(file, keys.back(), "is missing");
    rows.push_back(internal::integers(*row, file, keys.back()));
    if (std::ssize(rows.back()) != num_slots)
      throw ParseError(file, keys.back(),
                       fmt::format("has {} slots, but num_slots is {}", rows.back().size(), num_slots));
  }
  internal::RowsShape shape = internal::rows_shape(file, options);
  shape.num_experts = num_experts;
  return internal::placement_of_rows(rows, keys, shape);
}

}  // namespace evenkeel
