// Statistics of the rows of an array of ids, each the k experts of a token in a layer. By them, places
// without a choice are known, and ids that no router chose so.
//
// Method  one walk over the array, a block at a time; rows are compared place by place (k is small).
// Cost    O(elements x k) time, memory of one block and O(layers).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::internal {

// The largest number of an unsigned type, also where it was copied to a wider one: with those, programs fill
// places without an expert.
inline constexpr std::array<std::int64_t, 3> fillers = {std::numeric_limits<std::uint8_t>::max(),
                                                        std::numeric_limits<std::uint16_t>::max(),
                                                        std::numeric_limits<std::uint32_t>::max()};
bool is_filler(std::int64_t id);

struct IdRows {
  // Of one of `fillers`.
  struct Filler {
    bool met = false;
    bool chosen = false;             // a chosen row has it
    bool twice = false;              // a chosen row has it twice
    std::int64_t below = -1;         // the largest number below it
    std::int64_t chosen_below = -1;  // the same of chosen rows
  };
  // Equal rows of tokens that are not blank: how many, and their least and largest id.
  struct Scattered {
    std::int64_t rows = 0;
    std::int64_t least = -1;
    std::int64_t most = -1;

    void add(const Scattered& more) {
      if (more.rows == 0) return;
      least = rows == 0 ? more.least : std::min(least, more.least);
      most = std::max(most, more.most);
      rows += more.rows;
    }
  };
  struct Layer {
    std::int64_t absent = 0;       // rows of -1 alone
    std::int64_t equal = 0;        // rows of one other id, k times; none where k is 1
    std::int64_t chosen = 0;       // all other rows
    bool one_value = true;         // the equal rows are all of the same id
    std::int64_t equal_value = 0;  // of the first equal row
    bool is_zero = true;           // all ids are 0 or -1: all there is to see where k is 1
    Scattered scattered = {};
  };
  std::int64_t tokens = 0;
  std::int64_t k = 0;
  std::vector<Layer> layers;
  std::int64_t blank_tokens = 0;  // all their rows are equal, of one id, or of 0 and one other
  std::int64_t repeated = 0;      // chosen rows that name an id twice, fillers left aside
  std::int64_t least = 0;         // of all numbers
  std::int64_t most = 0;
  std::int64_t most_chosen = -1;  // of chosen rows
  std::array<Filler, fillers.size()> of_filler = {};
  // The one id of which some rows are and which no chosen row has.
  std::optional<std::int64_t> unchosen;

  std::int64_t chosen_rows() const;
};

// `ids` is [tokens, layers, k], or [tokens, k] of one layer.
IdRows look_at_rows(ArrayReader& ids, std::int64_t tokens, std::int64_t layers, std::int64_t k);

// How a trace is read out of an array: which of its layers, and which places hold no expert.
struct RowRules {
  std::vector<int> layers;  // kept, ascending; all of them where nothing is left out
  bool blank_tokens_are_absent = false;
  std::optional<std::int64_t> no_choice;  // rows of this id alone are no choice
  std::vector<std::int64_t> fills;        // these ids are no experts
  std::int64_t largest_id = -1;           // of what remains
  std::vector<std::string> notes;         // what was left out, and why
};

// The fillers that are no experts, the largest first: there are not so many experts, all other ids are far
// below, or it alone is named twice in a row. Throws InvalidArgument where one may be an expert or not, or
// where nobody says how many experts there are and several look as if they filled places.
std::vector<std::int64_t> fills_of(const IdRows& rows, std::optional<int> num_experts,
                                   const std::string& file);
// The largest id of a chosen row that does not fill places.
std::int64_t largest_chosen(const IdRows& rows, const std::vector<std::int64_t>& fills);

// A router never chooses one expert k times. So layers that hold one id throughout are dense ones, and left
// out; and unless `literal`, tokens that hold one id throughout have no expert, other rows of one id have
// none where it is the same in all of them, and an id that is only met in such rows is no expert. Other
// repeated ids are meant. `num_experts` is what somebody said. Throws ParseError where not `literal` and no
// row is a choice, InvalidArgument as fills_of() does.
RowRules rules_of(const IdRows& rows, bool literal, std::optional<int> num_experts, const std::string& file);

}  // namespace evenkeel::internal
