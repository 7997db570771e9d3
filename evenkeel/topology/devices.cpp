#include "evenkeel/topology/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

constexpr std::string_view a100 =
    "NVIDIA A100 Tensor Core GPU datasheet, https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/"
    "a100/pdf/nvidia-a100-datasheet-nvidia-us-2188504-web.pdf "
    "(A100 80GB SXM: bf16 312 TFLOPS, NVLink 600 GB/s both ways, memory 2,039 GB/s)";
constexpr std::string_view h100 =
    "NVIDIA H100 Tensor Core GPU, https://www.nvidia.com/en-us/data-center/h100/ "
    "(H100 SXM: bf16 1,979 TFLOPS with sparsity, NVLink 900 GB/s both ways, memory 3.35 TB/s)";
constexpr std::string_view h200 =
    "NVIDIA H200 Tensor Core GPU, https://www.nvidia.com/en-us/data-center/h200/ "
    "(H200 SXM: bf16 1,979 TFLOPS with sparsity, NVLink 900 GB/s both ways, memory 4.8 TB/s)";
constexpr std::string_view b200 =
    "NVIDIA HGX platform, https://www.nvidia.com/en-us/data-center/hgx/ "
    "(HGX B200, a GPU: bf16 4.5 PFLOPS with sparsity, NVLink 1.8 TB/s both ways); "
    "NVIDIA DGX B200 datasheet (memory 64 TB/s of eight GPUs)";
constexpr std::string_view mi300x =
    "AMD Instinct MI300X accelerator data sheet, https://www.amd.com/content/dam/amd/en/documents/"
    "instinct-tech-docs/data-sheets/amd-instinct-mi300x-data-sheet.pdf "
    "(bf16 1,307.4 TFLOPS; seven Infinity Fabric links to its peers, 128 GB/s each both ways; memory 5.3 "
    "TB/s)";

// NVIDIA's figures with sparsity are twice the dense figures used here.
constexpr std::array<DevicePreset, 5> devices = {{
    {"a100", "A100 80GB SXM", 312, 600.0 / 2, 2039, 79.14, a100},
    {"h100", "H100 SXM", 1979.0 / 2, 900.0 / 2, 3350, 79.10, h100},
    {"h200", "H200 SXM", 1979.0 / 2, 900.0 / 2, 4800, 139.72, h200},
    {"b200", "B200 of an HGX", 4500.0 / 2, 1800.0 / 2, 8000, 178.35, b200},
    {"mi300x", "MI300X among seven others", 1307.4, 7 * 128.0 / 2, 5300, 191.45, mi300x},
}};

}  // namespace

std::span<const DevicePreset> device_presets() {
  return devices;
}

const DevicePreset& device_preset(const std::string& name, const std::string& option) {
  std::string lower = name;  // people also write H100
  for (char& letter : lower)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  const auto* found = std::ranges::find(devices, lower, &DevicePreset::name);
  if (found != devices.end()) return *found;
  throw InvalidArgument(
      option, fmt::format("there is no device '{}'", name),
      fmt::format("{}", fmt::join(devices | std::views::transform(&DevicePreset::name), ", ")));
}

}  // namespace evenkeel
