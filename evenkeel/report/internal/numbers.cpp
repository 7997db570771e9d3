#include "evenkeel/report/internal/numbers.h"

#include <fmt/format.h>

namespace evenkeel::internal {

namespace {

std::string in_threes(std::string digits) {
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

}  // namespace

std::string fixed(double value, int places) {
  return fmt::format("{:.{}f}", value, places);
}

std::string grouped(std::int64_t number) {
  return in_threes(fmt::format("{}", number));
}

std::string grouped(double number) {
  return in_threes(fmt::format("{:.0f}", number));
}

std::string counted(std::int64_t number, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", grouped(number), number == 1 ? one : many);
}

}  // namespace evenkeel::internal
