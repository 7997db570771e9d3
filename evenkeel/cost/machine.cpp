#include "evenkeel/cost/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

constexpr double kLeastRate = 1;
constexpr double kMostRate = 1e30;
constexpr double kMostSeconds = 1e6;

constexpr MachineNumber kNumbers[] = {
    {"flops_per_second", &Machine::flops_per_second, kLeastRate, kMostRate},
    {"inner_half", &Machine::inner_half, 0, 1e6},
    {"weight_bytes_per_second", &Machine::weight_bytes_per_second, kLeastRate, kMostRate},
    {"overlap", &Machine::overlap, 0, 1},
    {"products_seconds", &Machine::products_seconds, 0, kMostSeconds},
    {"link_bytes_per_second", &Machine::link_bytes_per_second, kLeastRate, kMostRate},
    {"link_seconds", &Machine::link_seconds, 0, kMostSeconds},
    {"nic_bytes_per_second", &Machine::nic_bytes_per_second, kLeastRate, kMostRate},
    {"nic_seconds", &Machine::nic_seconds, 0, kMostSeconds},
    {"ranks_per_nic", &Machine::ranks_per_nic, 1, 1e6, /*is_whole=*/true},
    {"ramp_bytes", &Machine::ramp_bytes, 0, 1e12},
    {"chunk_seconds", &Machine::chunk_seconds, 0, kMostSeconds}};

}  // namespace

bool MachineNumber::allows(double number) const {
  return number >= least && number <= most && (!is_whole || number == std::floor(number));
}

std::string MachineNumber::allowed() const {
  return fmt::format("{}{:g}..{:g}", is_whole ? "a whole number in " : "", least, most);
}

std::span<const MachineNumber> machine_numbers() {
  return kNumbers;
}

Machine device_machine(const DevicePreset& device) {
  const double link = device.link_gigabytes_per_s() * 1e9;
  return {.flops_per_second = device.tflops() * 1e12,
          .weight_bytes_per_second = device.memory_gigabytes_per_s() * 1e9,
          .link_bytes_per_second = link,
          .nic_bytes_per_second = link};
}

void require_machine(const Machine& machine, const char* argument) {
  for (const MachineNumber& number : kNumbers)
    if (const double value = machine.*number.value; !number.allows(value))
      throw InvalidArgument(argument, fmt::format("{} is {}", number.name, value), number.allowed());
}

ExpertWork expert_work(std::int64_t hidden, std::int64_t intermediate, int matrices,
                       std::int64_t element_bytes) {
  const auto elements = static_cast<double>(matrices * hidden * intermediate);
  return {.elements = elements,
          .outputs = static_cast<double>((matrices - 1) * intermediate + hidden),
          .bytes = elements * static_cast<double>(element_bytes)};
}

double row_seconds(const Machine& machine, const ExpertWork& work) {
  return 2 * (work.elements + machine.inner_half * work.outputs) / machine.flops_per_second;
}

double read_seconds(const Machine& machine, double bytes) {
  return bytes / machine.weight_bytes_per_second;
}

double expert_seconds(const Machine& machine, const ExpertWork& work, double rows) {
  const double multiplying = rows * row_seconds(machine, work);
  const double reading = std::min(rows, 1.0) * read_seconds(machine, work.bytes);
  return std::max(multiplying, reading) + (1 - machine.overlap) * std::min(multiplying, reading);
}

}  // namespace evenkeel
