// Steps that others, or we on another machine, have measured, replayed: what the simulator predicts beside
// what was measured. None of it needs a clock.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::published {

struct Prediction {
  std::string what;
  double measured = 0;
  double predicted = 0;        // of several draws, their median
  double least = 0, most = 0;  // of the draws
};

struct Errors {
  double median = 0, p90 = 0;  // of |predicted / measured - 1|
  double signed_median = 0;    // of predicted / measured - 1
  double within_draws = 0;     // the part of what was measured that lies between least and most
};
Errors errors_of(const std::vector<Prediction>& predictions);

// DeepSeek-V3's experts on the heaviest of 2 to 256 H200s, in fp8, under power laws (tests/data/README.md).
// Rates of products are those of bf16, fitted on even routing of other shapes; fp8 multiplies twice as fast
// and has half of the bytes. The collectors drew without a seed, so each prediction is of so many draws.
//
// TensorRT-LLM: EPLB's placement, with 0 and 32 copies, over experts in order; ratios of the same law.
std::vector<Prediction> copies_over_none(int draws);
// SGLang: a power law over even routing. Left out are numbers of ranks whose even steps would have read their
// weights faster than the memory of an H200 can.
std::vector<Prediction> skewed_over_even(int draws);

// The forward steps of docs/log/h200.md in milliseconds, and with `speedups` those of level over ep. Links
// are those that were assumed there. Other rates are those that the same page has of even products and of
// copies, or the device's preset.
enum class Rates { measured, preset };
std::vector<Prediction> h200_steps(bool speedups, Rates rates = Rates::measured);

// docs/log/cpu-layer.md: speed-ups over ep on the critical path of thread ranks, of least-loaded and level
// forward and of level with backward. Rates are those that a machine has before anything of it is known.
std::vector<Prediction> cpu_speedups(bool backward);

// docs/torch.md: two processes on one machine, level over transformers' own all-to-all, which sends a row for
// every assignment. Rates as above.
std::vector<Prediction> torch_speedups();
// docs/placement-study.md: four processes on two nodes that a link of 50 Mbit/s joins, speeds over contiguous
// experts under ep. By the bytes that passed the link its busier way; all else takes as long as there.
std::vector<Prediction> shaped_link_speedups();

// What papers say of their methods on their machines, beside the nearest that can be replayed: LLEP's layers
// at 95 % into one expert, and MemFine's peaks and times of its three methods at the loads of its Figure 2.
// Its largest step under MACT took two chunks, so the budget is what two take.
std::vector<Prediction> llep_headlines();
std::vector<Prediction> memfine_headlines();

}  // namespace evenkeel::published
