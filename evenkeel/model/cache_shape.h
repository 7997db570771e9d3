// What a layer keeps of a sequence when a model is served: keys and values, or a state.
//
//   Qwen3-30B-A3B   4 key heads: {256 numbers, 4 heads}, a key and a value of 128 each for every head
//   DeepSeek-V3     576 numbers that all heads share
#pragma once

#include <cstdint>

namespace evenkeel {

struct CacheShape {
  // A number as the cache has it; a number of an fp8 key with an f32 scale for each 128, by which an indexer
  // chooses tokens; a number of a state, in f32.
  enum class Unit { cached, index_key, state };

  std::int64_t numbers = 0;  // of each head
  std::int64_t heads = 0;    // that tensor parallelism deals to devices; 0: all share the numbers
  std::int64_t tokens = 1;   // of the sequence that the numbers stand for; 0: all, however long it is
  std::int64_t window = 0;   // the last so many tokens alone; 0: all
  Unit unit = Unit::cached;
};

}  // namespace evenkeel
