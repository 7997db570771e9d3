// The meaning of an array of numbers that nobody named: counts of experts, or the expert ids of tokens.
// Evidence decides, the same for every container and command. Where it leaves the meaning open, the user is
// asked.
//
// Shapes      counts [layers, E] or [steps, layers, E]; ids [tokens, k] of one layer or [tokens, layers, k].
// For counts  numbers in floating point; rows of more than 64, or with an id that no model has; ids that do
//             not fit num_experts; rows of a step with equal sums; rows of 16 and more that name one twice.
// For ids     a -1; more rows than any model has layers; columns that are not as many as the experts; else an
//             array of three dimensions, as servers return it.
// Asked       two dimensions without evidence; an array with evidence against both.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel::internal {

enum class BareArray { counts, ids };

// `options` may say it. Throws InvalidArgument, which names the two readings and the option that chooses,
// where nothing decides; two dimensions are then `where_open`, if it is given, and three are asked about,
// which else are ids. ParseError for a shape that is neither.
BareArray bare_array_kind(ArrayReader& array, const RoutingOptions& options, const std::string& file,
                          std::optional<BareArray> where_open = {});

// Throws ParseError where the dimension that should be layers is longer than any model, and the one before it
// is not: the array is in another order.
void require_layer_order(const std::vector<std::int64_t>& shape, const std::string& file,
                         const std::string& key);

// Whether numbers look like a map of physical to logical experts, [layers, physical experts]: saved alone, it
// would pass for counts of experts that hardly anybody chose. Such a map has two dimensions, and every row
// has every id from 0 to the largest of all, which is less than its length.
bool looks_like_expert_map(std::span<const std::int64_t> shape, std::span<const std::int64_t> values);
// Throws InvalidArgument, which names both readings and how to choose one.
[[noreturn]] void ask_about_expert_map(std::span<const std::int64_t> shape, const std::string& file);

}  // namespace evenkeel::internal
