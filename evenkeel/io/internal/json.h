// JSON from files, with every refusal a ParseError that names file and key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/internal/text.h"

namespace evenkeel::internal {

using Json = nlohmann::json;

inline constexpr int max_json_depth = 16;

// Parses text that stands at byte `begin` of the file.
Json parse_json(std::string_view text, const std::string& file, std::int64_t begin = 0);
Json read_json(const ByteSource& source);

// The rest throw ParseError if the value is not there or not of the kind; `key` is how messages call it.
const Json& member(const Json& object, const char* key, const std::string& file);
std::int64_t integer(const Json& value, const std::string& file, const std::string& key);
int small_integer(const Json& value, std::int64_t least, std::int64_t most, const std::string& file,
                  const std::string& key);
std::vector<std::int64_t> integers(const Json& list, const std::string& file, const std::string& key);

// Throws ParseError if a load is negative, or all together are above 2^63-1.
void require_loads(std::span<const std::int64_t> loads, const std::string& file, const std::string& key);

}  // namespace evenkeel::internal
