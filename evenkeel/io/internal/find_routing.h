// Chooses the reader for a file of routing by its content.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/found_routing.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel::internal {

// Throws as read_recording() does.
FoundRouting find_routing(Content content, const ByteSource& source, const ReadOptions& options);
// The same as read_recording() for a file whose content is already known (read_recording.cpp).
Recording read_recording_known(Content content, const ByteSource& source, const ReadOptions& options);

// Reads JSON (docs/formats.md#loads, #counts): a profile, {"loads": [layer][expert]}; the loads of one step,
// {"loads": [expert]} or {"counts": [rank][expert]}; counts with another name, [layer][expert] or
// [step][layer][expert]; or lists without a name.
FoundRouting find_in_json(JsonDocument&& json, const std::string& file, const ReadOptions& options);
// Reads {"loads": [layer][expert]}, optionally with "transitions": [layer][from][to]. If the keys format,
// num_layers or num_experts exist, they must agree (profile_file.cpp).
RoutingProfile profile_of_json(const Json& json, const std::string& file);
// Reads a profile from the arrays `loads` and, optionally, `transitions` (profile_file.cpp).
RoutingProfile profile_of_arrays(const ArrayFile& file);

// The number in the array `num_experts`; nullopt if there is no such array.
std::optional<std::int64_t> experts_said(const ArrayFile& file);
// Throws ParseError if the file's num_experts differs from the number of experts in its counts.
void require_experts_said(std::optional<std::int64_t> said, std::int64_t there, const std::string& file);
// Throws ParseError if the file also has a map of physical experts, since the counts may be of those.
void require_no_map(const Json& json, std::string_view name, const std::string& file);

// The name among `names` that the file has; empty if it has none. Throws ParseError if it has two.
std::string only_of(std::span<const std::string_view> names, const std::function<bool(std::string_view)>& has,
                    const std::string& file);

// Known names of arrays, lists and tensors of counts.
inline constexpr std::array<std::string_view, 6> count_names = {
    "counts", "logical_count", "expert_counts", "expert_load", "tokens_per_expert", "weight"};
// SGLang's counts have a row for every hidden layer. For other names the rows are unknown.
inline CountRows rows_of(std::string_view name) {
  return name == "logical_count" ? CountRows::hidden_if_dense : CountRows::unknown;
}

}  // namespace evenkeel::internal
