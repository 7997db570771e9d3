// Routing profiles in files: safetensors (format=evenkeel.profile.v1), npz with the same arrays, or JSON.
#pragma once

#include <string>

#include "evenkeel/io/array_file.h"
#include "evenkeel/routing/profile.h"

namespace evenkeel {

// Throws ParseError if the file is not a profile, a number is negative, or a total is above 2^63-1.
RoutingProfile read_profile(const ByteSource& source);

// `format` is safetensors, npz or json.
void write_profile(const RoutingProfile& profile, const std::string& path,
                   FileFormat format = FileFormat::safetensors);

}  // namespace evenkeel
