// The order of an array's dimensions, said by their names.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/array_file.h"

namespace evenkeel::internal {

struct Order {
  std::string_view axes;  // "tokens,layers,k"
  bool is_of_tokens;      // ids, else counts
  bool is_of_one_step = false;

  std::ptrdiff_t num_axes() const;
  // The length along the axis of a name; 1 where there is none.
  std::int64_t length(const std::vector<std::int64_t>& shape, std::string_view axis) const;
};

inline constexpr std::array<Order, 9> orders = {{{"tokens,layers,k", true},
                                                 {"tokens,k,layers", true},
                                                 {"layers,tokens,k", true},
                                                 {"tokens,k", true},
                                                 {"layers,experts", false},
                                                 {"steps,layers,experts", false},
                                                 {"layers,ranks,experts", false},
                                                 {"experts", false, true},
                                                 {"ranks,experts", false, true}}};

// Null where there is none such.
const Order* find_order(std::string_view axes);
// Throws InvalidArgument: no order, one of other dimensions than the shape has, or of one step where that is
// not wanted.
const Order& checked_order(std::string_view axes, const std::vector<std::int64_t>& shape, bool one_step,
                           const std::string& file);

// "trace" or "counts", which stand for the usual order of as many dimensions as there are.
bool is_short_form(std::string_view axes);
// Whether they are of the ids of tokens, or of counts; neither if they are a short form.
bool is_order_of_tokens(std::string_view axes);
bool is_order_of_counts(std::string_view axes);

// Throws InvalidArgument where a dimension that should be layers is longer than any model, and the one before
// it is not: the array is in another order than its name says.
void require_layer_order(const std::vector<std::int64_t>& shape, const std::string& file,
                         const std::string& key);

// Ids, or their weights, in the order [tokens, layers, k], which `axes` says they are not in. Throws
// InvalidArgument where the shape has other dimensions.
std::unique_ptr<ArrayReader> in_usual_order(const ArrayFile& file, const ArrayInfo& array,
                                            std::string_view axes);

}  // namespace evenkeel::internal
