// Well-known devices by name: what their vendors say that products, links and memory reach.
//
//   DevicePreset h100 = device_preset("h100");
//
// Peaks are those of datasheets: dense bf16 products, what arrives over the links within a node, memory.
// Vendors publish both directions of a link together; here it is one direction, so half of it. Nobody reaches
// a peak. The part that is reached depends on shapes and software, so `assumed_share_of_peak` is an
// assumption, not a measurement. Memory is what a framework sees, less than the datasheet's: as PyTorch's
// out-of-memory errors state the total capacity, the least where drivers differ.
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
  double memory_gibibytes;  // with two places, as those errors print it
  std::string_view source;  // pages of the vendor

  // By the assumption.
  double tflops() const { return assumed_share_of_peak * peak_tflops; }
  double link_gigabytes_per_s() const { return assumed_share_of_peak * peak_link_gigabytes_per_s; }
  double memory_gigabytes_per_s() const { return assumed_share_of_peak * peak_memory_gigabytes_per_s; }

  std::int64_t memory_bytes() const {
    return static_cast<std::int64_t>(memory_gibibytes * (std::int64_t{1} << 30));
  }
};

std::span<const DevicePreset> device_presets();
// In small letters or capitals. Throws InvalidArgument for a name that is none, listing those there are; the
// error calls it `option`.
const DevicePreset& device_preset(const std::string& name, const std::string& option = "device");

}  // namespace evenkeel
