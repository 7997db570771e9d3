// What a layer caches for one sequence when a model is served: keys and values, or a state.
//
//   Qwen3-30B-A3B   4 key heads: {256 numbers, 4 heads}, a key and a value of 128 each for every head
//   DeepSeek-V3     576 numbers that all heads share
#pragma once

#include <cstdint>

namespace evenkeel {

struct CacheShape {
  // cached     a number in the type of the cache
  // index_key  a number of an indexer's fp8 key, with an f32 scale for every 128 numbers
  // state      a number of a state, in f32
  enum class Unit { cached, index_key, state };

  std::int64_t numbers = 0;  // in each head; if heads is 0, in all heads together
  std::int64_t heads = 0;    // tensor parallelism divides them over devices; 0: all heads share the numbers
  std::int64_t tokens = 1;   // tokens that one entry covers; 0: one entry for a sequence of any length
  std::int64_t window = 0;   // only this many last tokens are kept; 0: all
  Unit unit = Unit::cached;
};

}  // namespace evenkeel
