// Reports `evenkeel convert` and `evenkeel permute`: the files written, and how they were made.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/io/convert.h"
#include "evenkeel/io/permute_checkpoint.h"

namespace evenkeel {

struct Conversion {
  std::string input;
  std::string output;
  Converted done;
};

std::string to_text(const Conversion& conversion);
std::string to_json(const Conversion& conversion);

struct Permutation {
  std::string checkpoint;
  std::string output;
  int num_experts = 0;
  int num_ranks = 0;
  PermutedCheckpoint done;
};

std::string to_text(const Permutation& permutation);
std::string to_json(const Permutation& permutation);
// Notes for a person, one sentence each.
std::vector<std::string> notes_of(const Permutation& permutation);

}  // namespace evenkeel
