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

Case tiny_case(std::mt19937_64& random, bool copies) {
  Case c;
  c.num_ranks = static_cast<int>(draw(random, 2, 4));
  const std::int64_t most[] = {30, 20, 14};
  const std::int64_t experts = draw(random, 1, c.num_ranks == 4 ? 5 : 6);
  const std::int64_t hot = draw(random, 0, experts - 1), heat = draw(random, 0, 3);
  const bool contiguous = draw(random, 0, 1) == 0;
  c.loads.assign(static_cast<std::size_t>(experts), 0);
  for (std::int64_t i = draw(random, 1, most[c.num_ranks - 2]); i > 0; --i)
    ++c.loads[static_cast<std::size_t>(draw(random, 0, 3) < heat ? hot : draw(random, 0, experts - 1))];
  for (std::int64_t e = 0; e < experts; ++e)
    c.homes.push_back(contiguous && !copies ? std::vector{static_cast<int>(e * c.num_ranks / experts)}
                                            : draw_homes(random, c.num_ranks, copies));
  if (draw(random, 0, 3) == 0)
    for (int r = 0; r < c.num_ranks; ++r) c.base_load.push_back(draw(random, 0, 4));
  return c;
}

Counts with_random_sources(std::mt19937_64& random, const Case& c) {
  Counts counts(c.num_ranks, static_cast<int>(c.loads.size()));
  for (std::size_t e = 0; e < c.loads.size(); ++e) {
    std::int64_t rest = c.loads[e];
    for (std::size_t turn = 0; rest > 0; ++turn) {
      const auto source = static_cast<std::size_t>(draw(random, 0, c.num_ranks - 1));
      const std::int64_t part = turn > 20 ? rest : draw(random, 0, rest);
      counts.rows()[source * c.loads.size() + e] += part;
      rest -= part;
    }
  }
  counts.sum_loads();
  return counts;
}

std::vector<std::int64_t> concentrated(std::mt19937_64& random, int experts, std::int64_t assignments,
                                       double share, int hot, bool spread) {
  std::vector<std::size_t> ids(static_cast<std::size_t>(experts));
  for (std::size_t e = 0; e < ids.size(); ++e) ids[e] = e;
  if (spread) std::ranges::shuffle(ids, random);
  std::vector<std::int64_t> loads(ids.size(), 0);
  const auto into_hot = static_cast<std::int64_t>(share * static_cast<double>(assignments));
  for (std::int64_t i = 0; i < into_hot; ++i) ++loads[ids[static_cast<std::size_t>(i % hot)]];
  for (std::int64_t i = into_hot; i < assignments; ++i)
    ++loads[ids[static_cast<std::size_t>(draw(random, hot, experts - 1))]];
  return loads;
}

}  // namespace evenkeel
