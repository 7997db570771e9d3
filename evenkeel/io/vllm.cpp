#include "evenkeel/io/vllm.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/physical_rows.h"
#include "evenkeel/io/limits.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr const char* record_type = "eplb_initial_mapping";

// What a record says; two that say the same may both be there.
std::string content_of(const JsonField& record) {
  std::string content;
  for (const char* key : {"version", "num_redundant_experts", "num_slots", "initial_global_assignments"})
    if (const auto value = record.find(key)) content += fmt::format("{}: {}\n", key, (*value)->dump());
  return content;
}

JsonDocument only_record(const ByteSource& source) {
  std::optional<JsonDocument> only;
  std::int64_t first_line = 0;
  for_each_json_line(source, [&](JsonDocument&& record, std::int64_t line) {
    const std::string where = fmt::format("{}: line {}", source.name(), line);
    const JsonField said(record, where);
    if (*said["record_type"] != record_type) return;
    if (only && content_of(said) != content_of(JsonField(*only, where)))
      said["record_type"].fail("is a placement unlike that in line {}; keep one of the two", first_line);
    if (!only) first_line = line;
    only = std::move(record);
  });
  if (!only) throw parse_error(source.name(), "record_type", "no line has \"{}\"", record_type);
  return std::move(*only);
}

}  // namespace

void write_vllm_placement(const Placement& placement, const std::string& path) {
  const auto rows = physical_rows(placement, "vLLM");
  const std::size_t num_slots = rows.front().size();
  std::string text = fmt::format(
      "{{\"record_type\": \"{}\", \"version\": 1, \"num_redundant_experts\": {}, "
      "\"num_slots\": {}, \"initial_global_assignments\": {{",
      record_type, num_slots - static_cast<std::size_t>(placement.num_experts()), num_slots);
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += fmt::format("{}\"{}\": {}", i > 0 ? ", " : "", i, row_text(rows[i]));
  write_file(path, text + "}}\n");
}

Placement read_vllm_placement(const ByteSource& source, const PlacementFormatOptions& options) {
  const JsonDocument document = only_record(source);
  const JsonField record(document, source.name());
  const JsonField version = record["version"];
  if (version.integer() != 1) version.fail("is not 1");
  const int num_slots = record["num_slots"].integer(0, max_experts);
  const JsonField redundant = record["num_redundant_experts"];
  const int num_experts = num_slots - redundant.integer(0, max_experts);
  if (num_experts < 1) redundant.fail("leaves no expert");
  const JsonField assignments = record["initial_global_assignments"];
  if (!assignments->is_object()) assignments.fail("is not a JSON object of layers");
  std::vector<NamedRow> rows;
  for (std::size_t layer = 0; layer < assignments->size(); ++layer) {
    const JsonField row = assignments[std::to_string(layer)];
    rows.push_back({row.key(), row.integers()});
    if (const auto slots = std::ssize(rows.back().experts); slots != num_slots)
      row.fail("has {} slots, but num_slots is {}", slots, num_slots);
  }
  RowsShape shape = rows_shape(source.name(), options);
  shape.num_experts = num_experts;
  return placement_of_rows(rows, shape);
}

}  // namespace evenkeel
