// Whether numbers that nobody named look like a map of physical to logical experts, [layers, physical
// experts]: saved alone, it would pass for counts of experts that hardly anybody chose.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace evenkeel::internal {

// Two dimensions, and every row has every id from 0 to the largest of all, which is less than its length.
bool looks_like_expert_map(std::span<const std::int64_t> shape, std::span<const std::int64_t> values);

// Throws InvalidArgument, which names both readings and how to choose one.
[[noreturn]] void ask_about_expert_map(std::span<const std::int64_t> shape, const std::string& file);

}  // namespace evenkeel::internal
