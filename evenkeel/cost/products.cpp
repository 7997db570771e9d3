#include "evenkeel/cost/products.h"

#include <algorithm>

namespace evenkeel {

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
