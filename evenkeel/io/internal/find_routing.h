// The dispatcher: which reader a file of routing is for, by its content.
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
// read_recording() for whoever knows the content of a file already (read_recording.cpp).
Recording read_recording_known(Content content, const ByteSource& source, const ReadOptions& options);

// A profile in JSON, {"loads": [layer][expert]}; the loads of one step, {"loads": [expert]} or {"counts":
// [rank][expert]}; counts by another name, [layer][expert] or [step][layer][expert]; or lists without a name
// (docs/formats.md#loads, #counts).
FoundRouting find_in_json(JsonDocument&& json, const std::string& file, const ReadOptions& options);
// {"loads": [layer][expert], "transitions": [layer][from][to] or nothing}; a format, num_layers and
// num_experts must agree with them where they are there (profile_file.cpp).
RoutingProfile profile_of_json(const Json& json, const std::string& file);
// A profile in arrays, `loads` and `transitions` or nothing (profile_file.cpp).
RoutingProfile profile_of_arrays(const ArrayFile& file);

// The one number of an array `num_experts`, where there is one.
std::optional<std::int64_t> experts_said(const ArrayFile& file);
// Throws ParseError where a file says another number of experts than its counts are of.
void require_experts_said(std::optional<std::int64_t> said, std::int64_t there, const std::string& file);
// Throws ParseError where counts by this name stand beside a map of physical experts, of which they may be.
void require_no_map(const Json& json, std::string_view name, const std::string& file);

// The one of these names that a file has; empty where it has none. Throws ParseError where it has two.
std::string only_of(std::span<const std::string_view> names, const std::function<bool(std::string_view)>& has,
                    const std::string& file);

// The names by which arrays, lists and tensors of counts are known.
inline constexpr std::array<std::string_view, 6> count_names = {
    "counts", "logical_count", "expert_counts", "expert_load", "tokens_per_expert", "weight"};
// SGLang's counts have a row for every hidden layer; of others nobody says it.
inline CountRows rows_of(std::string_view name) {
  return name == "logical_count" ? CountRows::hidden_if_dense : CountRows::unsaid;
}

}  // namespace evenkeel::internal
