// The order of an array's dimensions, said by their names; and numbers that nobody named, in whatever file:
// an npy, the only array of an npz or of a file of torch.save, lists in JSON, lines of a table. Nothing is
// concluded from what they look like: axes or columns say what they are, or a model's config whose sizes they
// have in one order alone. Otherwise the user is asked, with every reading that the shape allows
// (docs/formats.md#arrays-without-a-name).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/found_routing.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel::internal {

// "trace" or "counts", which stand for the usual order of as many dimensions as there are.
bool is_short_form(std::string_view axes);
// Whether they are of the ids of tokens, or of counts; neither if they are a short form.
bool is_order_of_tokens(std::string_view axes);
bool is_order_of_counts(std::string_view axes);

// Throws InvalidArgument where a dimension that should be layers is longer than any model, and the one before
// it is not: the array is in another order than its name says.
void require_layer_order(const std::vector<std::int64_t>& shape, const std::string& file,
                         const std::string& key);

// Ids, or their weights, in the order [tokens, layers, k]; `axes` says in which they are stored, if in
// another. Throws InvalidArgument where the shape has other dimensions.
std::unique_ptr<ArrayReader> in_usual_order(const ArrayFile& file, const ArrayInfo& array,
                                            std::string_view axes);

// Throw InvalidArgument, which lists the readings there are, where nobody says which it is, or what is said
// is not true of the numbers; ParseError where the shape allows none.
FoundRouting nameless(const ArrayFile& file, const ArrayInfo& array, const ReadOptions& options);
template <class Number>
FoundRouting nameless(WholeArray<Number> array, const std::string& file, const ReadOptions& options);

// Counts by a name that is known. Axes may say that they are in another order than is usual.
FoundRouting named_counts(const ArrayFile& file, const ArrayInfo& array, CountRows rows,
                          const ReadOptions& options);

// An array in memory as if it were the only one of a file.
template <class Number>
ArrayFile file_of(WholeArray<Number> array, const std::string& file, const std::string& name = "");

}  // namespace evenkeel::internal
