// Formats numbers for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace evenkeel::internal {

// "1.234", with `places` decimals.
std::string fixed(double value, int places = 3);
// "1,234,567". Fractions are rounded.
std::string grouped(std::int64_t number);
std::string grouped(double number);
// "1 device", "2,000 devices".
std::string counted(std::int64_t number, std::string_view one, std::string_view many);

}  // namespace evenkeel::internal
