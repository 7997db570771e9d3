// Computes the loads of experts, slots and ranks from the counts of a step.
#pragma once

#include <cstdint>

#include "evenkeel/balance/cuda/internal/lanes.h"
#include "evenkeel/balance/cuda/internal/planner_buffers.h"
#include "evenkeel/device/cuda/team.h"

namespace evenkeel::cuda {

// The counts of a step, [parts][P][E], to be added up over parts.
struct StepCounts {
  const std::int32_t* parts = nullptr;
  int num_parts = 1;
  std::int32_t* sums = nullptr;  // [P][E], to be filled by level, which reads them

  // Fills every step-th of n sums, from `first` on.
  EVENKEEL_HOST_DEVICE void add_up(int first, int step, int n) const {
    constexpr int kAtOnce = 4;  // sums that do not wait for one another
    for (int begin = first; begin < n; begin += kAtOnce * step) {
      std::int32_t sum[kAtOnce] = {};
      for (int part = 0; part < num_parts; ++part)
        for (int k = 0; k < kAtOnce; ++k)
          if (begin + k * step < n) sum[k] += parts[part * n + begin + k * step];
      for (int k = 0; k < kAtOnce; ++k)
        if (begin + k * step < n) sums[begin + k * step] = sum[k];
    }
  }
};

template <class Team>
class StepLoads {
 public:
  EVENKEEL_HOST_DEVICE StepLoads(const Team& team, const PlannerBuffers& buffers)
      : team_(team), buffers_(buffers) {}

  // Fills buffers.homes, base, load, share, least and home_load. `base` may be null, for none.
  EVENKEEL_HOST_DEVICE void fill(const PlacementView& homes, const StepCounts& counts,
                                 const std::int32_t* base, std::int32_t min_segment) const {
    start_copy(homes);
    share_out(team_, homes.num_experts, [&](int e) { buffers_.load[e] = 0; });
    share_out(team_, homes.num_ranks,
              [&](int r) { buffers_.base[r] = buffers_.home_load[r] = base == nullptr ? 0 : base[r]; });
    team_.sync();
    share_out_in_parts(team_, homes.num_experts, [&](int expert, int first, int step) {
      add(&buffers_.load[expert], rows_of(expert, first, step, counts));
    });
    wait_for_copies();
    team_.sync();
    fill_slots(min_segment);
  }

 private:
  EVENKEEL_HOST_DEVICE void start_copy(const PlacementView& homes) const {
    share_out(team_, placement_integers(homes),
              [&](int i) { copy_in_background(homes.slot_begin + i, &buffers_.homes.all[i]); });
  }
  static EVENKEEL_HOST_DEVICE void copy_in_background(const std::int32_t* from, std::int32_t* to) {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
#else
    *to = *from;
#endif
  }
  static EVENKEEL_HOST_DEVICE void wait_for_copies() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_all;\n" ::: "memory");
#endif
  }

  // Assignments of an expert in every step-th row of counts.
  EVENKEEL_HOST_DEVICE std::int32_t rows_of(int expert, int first, int step, const StepCounts& counts) const {
    const int experts = buffers_.homes.num_experts;
    const int end = counts.num_parts * buffers_.homes.num_ranks * experts;
    constexpr int kAtOnce = 16;  // reads in flight at a time, even if fewer are needed
    const std::int32_t* const all_rows = counts.parts;
    std::int32_t all = 0;
    EVENKEEL_NO_UNROLL
    for (int at = first * experts + expert; at < end;)
      for (int k = 0; k < kAtOnce; ++k, at += step * experts) all += at < end ? all_rows[at] : 0;
    return all;
  }

  EVENKEEL_HOST_DEVICE void fill_slots(std::int32_t min_segment) const {
    const Homes& homes = buffers_.homes;
    share_out(team_, homes.num_slots, [&](int s) {
      const int expert = homes.slot_expert[s];
      const std::int32_t load = buffers_.load[expert];
      const std::int32_t share = share_of_copy(load, homes.copies_of(expert), homes.slot_copy[s]);
      buffers_.share[s] = share;
      buffers_.least[s] = load < min_segment ? load : min_segment;
      add(&buffers_.home_load[homes.slot_rank[s]], share);
    });
    team_.sync();
  }

  const Team& team_;
  const PlannerBuffers& buffers_;
};

}  // namespace evenkeel::cuda
