// What a reader finds in a file of routing. read_recording() makes a Recording from it: it adds layer numbers
// and separates the steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/routing/profile.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::internal {

// Which layers the rows of counts are:
//
//   moe_layers       MoE layers; the caller gives their numbers
//   hidden_layers    all hidden layers of the model, as in SGLang's own recordings
//   hidden_if_dense  counts with SGLang's name: hidden layers if a row has no assignment, else as moe_layers
//   unknown          counts of unknown origin: hidden layers if the first row has no assignment, as in all
//                    models with dense layers; else MoE layers without numbers
enum class CountRows { moe_layers, hidden_layers, hidden_if_dense, unknown };

struct FoundTrace {
  std::unique_ptr<TraceReader> reader;
  std::vector<std::vector<TokenRange>> steps = {};  // the tokens of each step, if the file has steps
};

struct FoundCounts {
  std::vector<std::int64_t> values;  // [steps, rows, experts], with a total of at most 2^63-1
  int num_rows = 0;
  int num_experts = 0;
  bool by_step = false;  // false: one step that holds everything
  CountRows rows = CountRows::unknown;
  LayerNumbers layers = {};  // of the rows, if the file has them
  std::string key = {};      // the name of the counts in messages
};

struct FoundProfile {
  RoutingProfile profile;
  std::vector<RoutingProfile> steps = {};
};

// The loads of one step, [E], or [ranks, E] by source rank.
struct FoundStep {
  IntArray loads;
  std::optional<int> num_ranks = {};
};

struct FoundRouting {
  std::string kind;    // as in Recording
  std::string format;  // as in Recording
  std::variant<FoundTrace, FoundCounts, FoundProfile, FoundStep> content;
  std::vector<std::string> notes = {};
  std::string axes = {};  // for arrays without names: how their dimensions were read

  // Sets `axes` and puts a note about the axes before all other notes. The note names `what` before the axes.
  void set_axes(const std::string& new_axes, std::string_view what = "");
};

// Takes counts [rows, E] or [steps, rows, E]. Throws ParseError for another shape, a negative number, or a
// total above 2^63-1.
FoundRouting found_counts(IntArray counts, const std::string& file, const std::string& key, CountRows rows);
// As above; loads that are not whole numbers are scaled to whole ones, with a note.
FoundRouting found_counts(const DoubleArray& counts, const std::string& file, const std::string& key,
                          CountRows rows);

// Converts loads that may not be whole numbers, such as moving averages of counts or shares of a total. Loads
// are int64 throughout the library, and only the ratios of averages matter. So all values of a file are
// multiplied by the same power of two and rounded.
//
// Guarantee   Whole numbers are unchanged. Fractions stay exact if some power of two makes all values whole,
//             with a total of at most 2^52. Otherwise each error is at most 2^-52 of the total. Positive
//             values stay positive.
//
// Adds a note if values were scaled. Throws ParseError, with `key` and the element's index, if a value is
// negative, infinite or NaN, or if the total is above 2^63-1.
std::vector<std::int64_t> scaled_loads(std::span<const double> values, const std::string& file,
                                       const std::string& key, std::vector<std::string>& notes);

// Throws ParseError if loads of this shape would need far more memory than the `numbers` in the file.
// Otherwise a small file could ask for unbounded memory.
void require_dense_enough(std::int64_t numbers, std::int64_t steps, std::int64_t layers, std::int64_t experts,
                          const std::string& file);

// "3 layers of 8 experts, 20 tokens, top-2"
std::string meaning_of(const FoundRouting& found);
// "16 layers"
std::string counted(std::int64_t count, std::string_view what);

// Ids [tokens, layers, k] for the model's layers `layers`; -1 means no expert.
struct TokenIds {
  std::vector<std::int32_t> ids;
  std::vector<int> layers;
  int top_k = 1;
  std::vector<std::vector<TokenRange>> steps = {};
};
// Leaves out layers and top-k places that have no id in any token. Throws ParseError if no id is left.
FoundRouting found_tokens(TokenIds tokens, std::optional<int> num_experts, const std::string& file);

}  // namespace evenkeel::internal
