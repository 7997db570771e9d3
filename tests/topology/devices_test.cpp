// Devices by name: a framework sees slightly less memory than the datasheet says.
#include "evenkeel/topology/devices.h"

#include <gtest/gtest.h>

#include <map>

namespace evenkeel {
namespace {

TEST(Devices, AFrameworkSeesLessMemoryThanTheDatasheetSays) {
  const std::map<std::string_view, double> datasheet = {
      {"a100", 80}, {"h100", 80}, {"h200", 141}, {"b200", 180}, {"mi300x", 192}};
  ASSERT_EQ(device_presets().size(), datasheet.size());
  for (const DevicePreset& device : device_presets()) {
    EXPECT_LT(device.memory_gibibytes, datasheet.at(device.name)) << device.name;
    EXPECT_GT(device.memory_gibibytes, 0.97 * datasheet.at(device.name)) << device.name;
  }
  EXPECT_EQ(device_preset("H100").memory_bytes(), 84'932'978'278);  // 79.10 GiB
}

}  // namespace
}  // namespace evenkeel
