// Numbers that nobody named, in whatever file: an npy, the only array of an npz or of a file of torch.save,
// lists in JSON, lines of a table. Nothing is concluded from what they look like: axes or columns say what
// they are, or a model's config whose sizes they have in one order alone. Otherwise the user is asked, with
// every reading that the shape allows (docs/formats.md#arrays-without-a-name).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/found_routing.h"
#include "evenkeel/io/read_recording.h"

namespace evenkeel::internal {

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
