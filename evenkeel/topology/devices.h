// Well-known devices by name, with the vendors' peak rates for matrix products, links and memory.
//
//   DevicePreset h100 = device_preset("h100");
//
// Peaks are taken from datasheets: dense bf16 products, incoming bandwidth over the links within a node,
// memory bandwidth. For a link, vendors publish the sum of both directions; the figure here is for one
// direction, which is half of that. Real programs stay below the peaks, by a factor that depends on shapes
// and software; `assumed_share_of_peak` is an assumption, not a measurement. Memory is the total capacity
// that PyTorch's out-of-memory errors print, which is less than the datasheet's. If drivers print different
// totals, it is the smallest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel {

inline constexpr double assumed_share_of_peak = 0.5;

struct DevicePreset {
  std::string_view name;     // such as "h100"
  std::string_view summary;  // one line for people
  double peak_tflops;        // 10^12 bf16 operations a second, without sparsity
  double peak_link_gigabytes_per_s;
  double peak_memory_gigabytes_per_s;
  double memory_gibibytes;  // total, with two decimals as in PyTorch's errors
  std::string_view source;  // web pages of the vendor

  // The peak rates times assumed_share_of_peak.
  double tflops() const { return assumed_share_of_peak * peak_tflops; }
  double link_gigabytes_per_s() const { return assumed_share_of_peak * peak_link_gigabytes_per_s; }
  double memory_gigabytes_per_s() const { return assumed_share_of_peak * peak_memory_gigabytes_per_s; }

  std::int64_t memory_bytes() const {
    return static_cast<std::int64_t>(memory_gibibytes * (std::int64_t{1} << 30));
  }
};

std::span<const DevicePreset> device_presets();
// Ignores case. Throws InvalidArgument about `option` for an unknown name; the error lists the known names.
const DevicePreset& device_preset(const std::string& name, const std::string& option = "device");

}  // namespace evenkeel
