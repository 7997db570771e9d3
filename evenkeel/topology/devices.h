// Well-known devices by name, with the vendors' peaks of matrix products, links and memory.
//
//   DevicePreset h100 = device_preset("h100");
//
// Peaks are taken from datasheets: dense bf16 products, incoming bandwidth over the links within a node,
// memory bandwidth. Vendors publish the sum of both directions of a link; here it is one direction, so half
// of that. Real programs stay below the peaks, by a factor that depends on shapes and software;
// `assumed_share_of_peak` is an assumption, not a measurement. Memory is the total capacity that PyTorch's
// out-of-memory errors print, which is less than the datasheet's; where drivers differ, it is the least.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel {

inline constexpr double assumed_share_of_peak = 0.5;

struct DevicePreset {
  std::string_view name;     // "h100"
  std::string_view summary;  // one line for people
  double peak_tflops;        // 10^12 operations a second, bf16, without sparsity
  double peak_link_gigabytes_per_s;
  double peak_memory_gigabytes_per_s;
  double memory_gibibytes;  // with two decimals, as PyTorch's errors print it
  std::string_view source;  // pages of the vendor

  // The peaks times assumed_share_of_peak.
  double tflops() const { return assumed_share_of_peak * peak_tflops; }
  double link_gigabytes_per_s() const { return assumed_share_of_peak * peak_link_gigabytes_per_s; }
  double memory_gigabytes_per_s() const { return assumed_share_of_peak * peak_memory_gigabytes_per_s; }

  std::int64_t memory_bytes() const {
    return static_cast<std::int64_t>(memory_gibibytes * (std::int64_t{1} << 30));
  }
};

std::span<const DevicePreset> device_presets();
// Ignores case. Throws InvalidArgument about `option` for an unknown name, listing the known ones.
const DevicePreset& device_preset(const std::string& name, const std::string& option = "device");

}  // namespace evenkeel
