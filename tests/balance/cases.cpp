#include "tests/balance/cases.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace evenkeel {

namespace {

std::int64_t draw_load(std::mt19937_64& random, std::int64_t kind) {
  switch (kind) {
    case 0:
      return draw(random, 0, 5);
    case 1:
      return 7;
    case 2:
      return draw(random, 900, 1100);
    case 3:
      return static_cast<std::int64_t>(std::exp(std::normal_distribution<>(5, 2)(random)));
    case 4:
      return draw(random, 0, 9) == 0 ? draw(random, 0, 100000) : draw(random, 0, 30);
    case 5:
      return draw(random, 0, 3) == 0 ? draw(random, 1, 1000) : 0;
    default:
      return draw(random, 0, std::int64_t{1} << 53);
  }
}

std::vector<int> draw_homes(std::mt19937_64& random, int ranks, bool copies) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
  std::ranges::shuffle(all, random);
  all.resize(static_cast<std::size_t>(copies ? draw(random, 1, std::min(ranks, 4)) : 1));
  return all;
}

template <class Items>
void print(std::ostream& out, const char* name, const Items& items) {
  out << name << " {";
  for (const auto& item : items) out << item << ", ";
  out << "} ";
}

}  // namespace

std::int64_t draw(std::mt19937_64& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

std::string Case::text() const {
  std::ostringstream out;
  out << num_ranks << " ranks ";
  print(out, "loads", loads);
  for (const auto& h : homes) print(out, "homes", h);
  print(out, "base", base_load);
  return out.str();
}

Case random_case(std::mt19937_64& random, const CaseLimits& limits) {
  Case c;
  c.num_ranks = static_cast<int>(draw(random, 1, limits.max_ranks));
  const int experts = static_cast<int>(draw(random, 1, limits.max_experts));
  const std::int64_t kind = draw(random, 0, 6);
  const bool contiguous = draw(random, 0, 2) == 0;
  for (int e = 0; e < experts; ++e) {
    c.loads.push_back(draw_load(random, kind));
    const int block = static_cast<int>(std::int64_t{e} * c.num_ranks / experts);
    c.homes.push_back(contiguous ? std::vector{block} : draw_homes(random, c.num_ranks, limits.copies));
  }
  if (limits.base_load && draw(random, 0, 1) == 0)
    for (int r = 0; r < c.num_ranks; ++r) c.base_load.push_back(draw_load(random, kind));
  return c;
}

}  // namespace evenkeel
