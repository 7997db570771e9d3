// Replays steps that others, or we on a different machine, have measured, and returns predictions with the
// measured values. Nothing is timed here.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::published {

struct Prediction {
  std::string what;
  double measured = 0;
  double predicted = 0;        // the median over random draws
  double least = 0, most = 0;  // over the draws
};

struct Errors {
  double median = 0, p90 = 0;  // of |predicted / measured - 1|
  double signed_median = 0;    // of predicted / measured - 1
  double within_draws = 0;     // the share of measured values between least and most
};
Errors errors_of(const std::vector<Prediction>& predictions);

// DeepSeek-V3's experts in fp8 on the most loaded H200 of 2 to 256, under power laws (tests/data/README.md).
// Product rates are fitted on bf16 with even routing of other shapes; fp8 multiplies twice as fast and has
// half the bytes. The collectors drew loads without a seed, so each prediction is the median of `draws`
// draws.
//
// TensorRT-LLM: the time with EPLB's placement, with 0 or 32 copies, relative to the time with experts in
// order under the same law.
std::vector<Prediction> copies_over_none(int draws);
// SGLang: the time under a power law relative to even routing. Leaves out rank counts whose even steps would
// have read weights faster than an H200's memory allows.
std::vector<Prediction> skewed_over_even(int draws);

// The forward steps of docs/log/h200.md in milliseconds; with `speedups`, the speed-ups of level over ep.
// Links are as assumed on that page. Other rates are those measured there for balanced products and copies,
// or the device's preset.
enum class Rates { measured, preset };
std::vector<Prediction> h200_steps(bool speedups, Rates rates = Rates::measured);

// docs/log/cpu-layer.md: speed-ups over ep on the critical path of thread ranks, for least-loaded and level
// in forward and for level with backward. Rates are the defaults of an unknown machine.
std::vector<Prediction> cpu_speedups(bool backward);

// docs/torch.md: two processes on one machine, speed-ups of level over transformers' own all-to-all, which
// sends one row per assignment. Rates as above.
std::vector<Prediction> torch_speedups();
// docs/placement-study.md: four processes on two nodes joined by a link of 50 Mbit/s, speed-ups over
// contiguous experts under ep. Predicted from the bytes in the link's busier direction; everything else takes
// as long as measured there.
std::vector<Prediction> shaped_link_speedups();

// The results that papers report on their machines, compared with the closest replay: LLEP's layers with 95 %
// of the load on one expert, and the peaks and times of MemFine's three methods at the loads of its Figure 2.
// MemFine's largest step under MACT took two chunks, so the budget is the memory of two chunks.
std::vector<Prediction> llep_headlines();
std::vector<Prediction> memfine_headlines();

}  // namespace evenkeel::published
