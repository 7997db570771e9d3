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
// A list of lists of ... of whole numbers, `levels` deep; all lists of a level are equally long. Throws
// ParseError otherwise.
IntArray nested_integers(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key);
// As nested_integers(), of any numbers.
DoubleArray nested_reals(const Json& list, std::size_t levels, const std::string& file,
                         const std::string& key);
// As nested_integers(); numbers that are not whole are scaled to whole ones, and `notes` says so. Throws
// ParseError as well for a negative number.
IntArray nested_loads(const Json& list, std::size_t levels, const std::string& file, const std::string& key,
                      std::vector<std::string>& notes);

}  // namespace evenkeel::internal
