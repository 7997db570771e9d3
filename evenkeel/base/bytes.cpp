#include "evenkeel/base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"KB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12},
                                          {"KiB", 1024.0},
                                          {"MiB", 1048576.0},
                                          {"GiB", 1073741824.0},
                                          {"TiB", 1099511627776.0}}};

}  // namespace

std::int64_t parse_bytes(std::string_view text, std::string_view what) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& known : kUnits) {
    const double bytes = number * known.bytes;
    if (error == std::errc() && unit == known.name && number >= 0 && bytes < 9.2e18)
      return static_cast<std::int64_t>(std::llround(bytes));
  }
  throw InvalidArgument(std::string(what), fmt::format("\"{}\" is not a size", text),
                        "a number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 512MiB");
}

namespace {

std::string format_in_units(std::int64_t bytes, bool up) {
  double value = static_cast<double>(bytes);
  std::string_view unit = "B";
  for (std::string_view larger : {"KiB", "MiB", "GiB", "TiB"}) {
    if (std::abs(value) < 1024) break;
    value /= 1024;
    unit = larger;
  }
  if (unit == "B") return fmt::format("{} B", bytes);
  return fmt::format("{:.1f} {}", up ? std::ceil(value * 10) / 10 : value, unit);
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  return format_in_units(bytes, false);
}

std::string format_bytes_up(std::int64_t bytes) {
  return format_in_units(bytes, true);
}

}  // namespace evenkeel
