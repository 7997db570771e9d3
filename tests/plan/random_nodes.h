// Random nodes of any sizes, with arbitrary ranks.
#pragma once

#include <vector>

namespace evenkeel::testing {

template <class Random>
std::vector<int> random_nodes(int ranks, Random& random) {
  std::vector<int> nodes, numbers(1 + random() % static_cast<unsigned>(ranks), -1);
  int next = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int& number = numbers[random() % numbers.size()];
    if (number < 0) number = next++;
    nodes.push_back(number);
  }
  return nodes;
}

}  // namespace evenkeel::testing
