// Arrays without a name: an npy, the only array of an npz or of a file of torch.save, lists in JSON, lines of
// a table. Their meaning is never guessed from their values. It comes from the options `axes` or `columns`,
// or from a model's config if its sizes fit in only one order. Otherwise an error lists every reading that
// the shape allows (docs/formats.md#arrays-without-a-name). This header also reads orders of dimensions by
// name, for arrays with and without a name.
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

// True for "trace" and "counts", which mean the usual order for the array's number of dimensions.
bool is_short_form(std::string_view axes);
// Whether the axes are an order of token ids, or of counts. Both are false for a short form.
bool is_order_of_tokens(std::string_view axes);
bool is_order_of_counts(std::string_view axes);

// Throws InvalidArgument if the middle dimension, which should be the layers, is larger than the number of
// layers of any model, and the first dimension is not: the array probably has another order.
void require_layer_order(const std::vector<std::int64_t>& shape, const std::string& file,
                         const std::string& key);

// A reader of ids or weights in the order [tokens, layers, k]; `axes` is the stored order if it differs.
// Throws InvalidArgument if the shape has another number of dimensions.
std::unique_ptr<ArrayReader> in_usual_order(const ArrayFile& file, const ArrayInfo& array,
                                            std::string_view axes);

// Read an array without a name. Throw InvalidArgument, listing the possible readings, if the options do not
// say how to read it or do not fit the numbers; ParseError if the shape allows no reading.
FoundRouting nameless(const ArrayFile& file, const ArrayInfo& array, const ReadOptions& options);
template <class Number>
FoundRouting nameless(WholeArray<Number> array, const std::string& file, const ReadOptions& options);

// Reads counts with a known name. options.axes may give an unusual order.
FoundRouting named_counts(const ArrayFile& file, const ArrayInfo& array, CountRows rows,
                          const ReadOptions& options);

// Presents an array in memory as the only one of a file.
template <class Number>
ArrayFile file_of(WholeArray<Number> array, const std::string& file, const std::string& name = "");

}  // namespace evenkeel::internal
