// What a reader finds in a file of routing, as it stands there. read_recording() makes a Recording of it: it
// says which of the model's layers the rows are, and tells steps apart.
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

// The kind of layers that the rows of counts are:
//
//   moe_layers       MoE layers, whose numbers are for the caller to say
//   hidden_layers    all hidden layers of the model, as in SGLang's own recordings
//   hidden_if_dense  counts by the name that SGLang gives its own: hidden layers where any is without an
//                    assignment, else as moe_layers
//   unsaid           counts that somebody saved: hidden layers where the first is without any assignment, as
//                    in all models with dense layers, else MoE layers whose numbers nobody said
enum class CountRows { moe_layers, hidden_layers, hidden_if_dense, unsaid };

struct FoundTrace {
  std::unique_ptr<TraceReader> reader;
  std::vector<std::vector<TokenRange>> steps = {};  // the tokens of each, where the file says them
};

struct FoundCounts {
  std::vector<std::int64_t> values;  // [steps, rows, experts], with a total of at most 2^63-1
  int num_rows = 0;
  int num_experts = 0;
  bool by_step = false;  // else there is one "step", of whatever was recorded
  CountRows rows = CountRows::unsaid;
  LayerNumbers layers = {};  // of the rows, where the file says them
  std::string key = {};      // how messages call the numbers
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
  std::string kind;    // as of a Recording
  std::string format;  // as of a Recording
  std::variant<FoundTrace, FoundCounts, FoundProfile, FoundStep> content;
  std::vector<std::string> notes = {};
  std::string axes = {};  // of numbers that nobody named

  // Keeps the order that they were read in, and says it in the first note; `what` stands before it.
  void say_axes(const std::string& said, std::string_view what = "");
};

// Counts [rows, E], or [steps, rows, E]. Throws ParseError: another shape, a negative number, or a total
// above 2^63-1.
FoundRouting found_counts(IntArray counts, const std::string& file, const std::string& key, CountRows rows);
// As above; loads that are not whole are scaled to whole ones, with a note.
FoundRouting found_counts(const DoubleArray& counts, const std::string& file, const std::string& key,
                          CountRows rows);

// Loads that are not whole numbers, such as moving averages of counts or shares of a total. Loads are int64
// throughout the library, and of averages only the ratios mean anything, so all values of a file are
// multiplied by one power of two and rounded.
//
// Guarantee   Whole numbers stay as they are. Others stay exact where a power of two makes all of them whole
//             with a total of at most 2^52; else each is off by at most 2^-52 of the total. What is above 0
//             stays above 0.
//
// Says in `notes` that values were scaled. Throws ParseError, with `key` and the element's place, if a value
// is negative, infinite or NaN, or if all together are above 2^63-1.
std::vector<std::int64_t> scaled_loads(std::span<const double> values, const std::string& file,
                                       const std::string& key, std::vector<std::string>& notes);

// A few numbers may name layers, experts and steps as large as they like. Throws ParseError where loads of so
// many would take far more memory than the numbers that a file has.
void require_dense_enough(std::int64_t numbers, std::int64_t steps, std::int64_t layers, std::int64_t experts,
                          const std::string& file);

// "3 layers of 8 experts, 20 tokens, top-2"
std::string meaning_of(const FoundRouting& found);
// "16 layers"
std::string counted(std::int64_t count, std::string_view what);

// Ids [tokens, layers, k] of the model's layers `layers`, -1 where there is none.
struct TokenIds {
  std::vector<std::int32_t> ids;
  std::vector<int> layers;
  int top_k = 1;
  std::vector<std::vector<TokenRange>> steps = {};
};
// Leaves out layers and places of the top-k that hold no id at all. Throws ParseError if there is no id.
FoundRouting found_tokens(TokenIds tokens, std::optional<int> num_experts, const std::string& file);

}  // namespace evenkeel::internal
