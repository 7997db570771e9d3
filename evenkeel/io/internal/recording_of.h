// A recording out of what a reader found: its rows become the model's layers, and its steps are told apart.
#pragma once

#include <string>

#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/found_routing.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel::internal {

// Layers without any assignment are left out as dense ones where rows are hidden layers; what options say of
// layers comes before what rows look like. Throws as read_recording() does.
Recording recording_of(FoundRouting found, const std::string& file, const ReadOptions& options);

// read_recording() for whoever knows the content of a file already (read_recording.cpp).
Recording read_recording_known(Content content, const ByteSource& source, const ReadOptions& options);

}  // namespace evenkeel::internal
