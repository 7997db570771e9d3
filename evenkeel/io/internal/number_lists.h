// Lists of lists of counts in JSON, whole or not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

// How deep the lists are, by their first elements.
std::size_t list_depth(const Json& list);
// Whether any number of a list, however deep, is not whole: then it holds counts, never ids.
bool has_fractions(const Json& list);
// The shape of lists of numbers, which are appended to `reals`. Throws ParseError: not `levels` deep, unequal
// lengths, what is no number.
std::vector<std::int64_t> nested_reals(const Json& list, std::size_t levels, const std::string& file,
                                       const std::string& key, std::vector<double>& reals);
// As nested_integers(); numbers that are not whole are scaled to whole ones, and `notes` says so. Throws
// ParseError as well for a negative number.
IntArray nested_loads(const Json& list, std::size_t levels, const std::string& file, const std::string& key,
                      std::vector<std::string>& notes);

}  // namespace evenkeel::internal
