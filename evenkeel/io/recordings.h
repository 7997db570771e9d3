// Several files of routing that go together: those that a placement is made from, and those it is judged on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/io/routing_file.h"
#include "evenkeel/routing/recorded_routing.h"

namespace evenkeel {

// Throws as open_routing() does.
RecordedRouting read_recording(const std::string& path, const RoutingOptions& options);

// Files of the same layers and experts, added up or all to be level. Each is given to `opened` too, whose
// trace can be read again. Throws InvalidArgument about `argument`, naming two files, where they are not.
std::vector<RecordedRouting> read_recordings(
    const std::vector<std::string>& paths, const RoutingOptions& options, const std::string& argument,
    const std::function<void(const RecordedRouting&, RoutingFile&)>& opened = {});

// Throws InvalidArgument about `argument`, naming a file, where the loads of all are above 2^63-1 together.
void require_sum(std::span<const RecordedRouting> recordings, const std::string& argument);

// The steps of a file that was opened with keep_steps; of a trace, windows of so many tokens. The profile is
// what they add up to, without transitions. Throws InvalidArgument where it has no steps, or they are told
// twice.
RecordedRouting recording_of_steps(RoutingFile& file, const std::string& path,
                                   std::optional<std::int64_t> step_tokens);

// A file of some of the layers that `options.layers` names; it says which, or has as many.
RecordedRouting read_recording_of_some_layers(const std::string& path, const RoutingOptions& options);

}  // namespace evenkeel
