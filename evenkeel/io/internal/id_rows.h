// What the rows of an array of whole numbers look like, if each is the k expert ids of a token in a layer:
// the evidence by which an array that nobody named is taken for ids or for counts, and by which places
// without a choice are known.
//
// Method  one walk over the array, a block at a time; rows are compared place by place (k is small).
// Cost    O(elements x k) time, memory of one block and O(layers).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::internal {

struct IdRows {
  struct Layer {
    std::int64_t absent = 0;       // rows of -1 alone
    std::int64_t equal = 0;        // rows of one other id, k times; none where k is 1
    std::int64_t chosen = 0;       // all other rows
    bool one_value = true;         // the equal rows are all of the same id
    std::int64_t equal_value = 0;  // of the first equal row
  };
  std::int64_t tokens = 0;
  std::int64_t k = 0;
  std::vector<Layer> layers;
  std::int64_t repeated = 0;  // chosen rows that name an id twice
  std::int64_t least = 0;     // of all numbers
  std::int64_t most = 0;
  std::int64_t most_chosen = -1;  // of chosen rows, without `filler`
  bool filler_is_chosen = false;  // `filler` is in a chosen row
  // In each step (of a single layer: in the whole array) all rows have the same sum, as counts of one step
  // have.
  bool equal_sums = false;

  std::int64_t equal_rows() const;
  std::int64_t chosen_rows() const;
};

// The largest number of an unsigned type, which programs fill places without an expert with.
std::optional<std::int64_t> filler_of(Dtype type);

// `ids` is [tokens, layers, k], or [tokens, k] of one layer.
IdRows look_at_rows(ArrayReader& ids, std::int64_t tokens, std::int64_t layers, std::int64_t k);

// How a trace is read out of an array: which of its layers, and which places hold no expert.
struct RowRules {
  std::vector<int> layers;  // kept, ascending; all of them where nothing is left out
  bool equal_rows_are_absent = false;
  std::optional<std::int64_t> fill;  // this id is none
  std::int64_t largest_id = -1;      // of what remains
  std::vector<std::string> notes;    // what was left out, and why
};

// `literal`: repeated ids are meant, as in our own traces; else k equal ids are no choice, since no router
// makes it. Layers without any choice are dense ones, and left out. `num_experts` is what somebody said.
// Throws ParseError where no token of any layer has a choice.
RowRules rules_of(const IdRows& rows, bool literal, std::optional<int> num_experts, Dtype type,
                  const std::string& file);

}  // namespace evenkeel::internal
