// Writes steps of `evenkeel compare` as a timeline: for each method, the layer and step that is least even
// under plain EP.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "evenkeel/base/error.h"
#include "evenkeel/report/compare.h"

namespace evenkeel {

namespace {

// threads of a rank; weights are sent in parallel with other phases
constexpr std::size_t kStep = 0, kWeights = 1;

class MethodTrace {
 public:
  MethodTrace(ChromeTrace& trace, const MethodResult& method, int ranks)
      : trace_(trace), picture_(method.picture), first_(trace.processes.size()) {
    for (int rank = 0; rank < ranks; ++rank)
      trace_.processes.push_back({fmt::format("{}: rank {}", method.method.name, rank), {"step", "weights"}});
  }

  void add() {
    std::map<int, std::int64_t> sent;  // by rank
    for (const PhaseSpan& span : picture_.spans) {
      ChromeTrace::Args args;
      if (span.chunk >= 0) args.emplace_back("chunk", std::int64_t{span.chunk});
      if (span.bytes > 0) args.emplace_back("bytes", static_cast<std::int64_t>(span.bytes));
      trace_.slices.push_back({process(span.rank), span.phase == SimPhase::weights ? kWeights : kStep,
                               std::string(name_of(span.phase)), span.backward ? "backward" : "forward",
                               span.begin, span.end, std::nullopt, std::move(args)});
      if (span.bytes > 0 && span.phase != SimPhase::weights)
        trace_.counters.push_back({process(span.rank), "bytes sent", span.end,
                                   sent[span.rank] += static_cast<std::int64_t>(span.bytes)});
    }
    for (const Transfer& transfer : picture_.transfers) add_flow(transfer);
  }

 private:
  std::size_t process(int rank) const { return first_ + static_cast<std::size_t>(rank); }
  // The arrow goes from the start of the transfer on the lender to the borrower's expert products that use
  // these weights.
  void add_flow(const Transfer& transfer) {
    const auto of = [&](int rank, SimPhase phase) {
      return std::ranges::find_if(picture_.spans, [&](const PhaseSpan& span) {
        return span.rank == rank && span.phase == phase && !span.backward;
      });
    };
    const auto weights = of(transfer.to.value(), SimPhase::weights);
    const auto products = of(transfer.to.value(), SimPhase::borrowed_products);
    const auto lends = of(transfer.from.value(), SimPhase::dispatch);
    if (weights == picture_.spans.end() || products == picture_.spans.end() || lends == picture_.spans.end())
      return;
    trace_.flows.push_back({fmt::format("expert {}", transfer.expert.value()),
                            "weights",
                            {process(transfer.from.value()), kStep, std::min(lends->begin, products->begin)},
                            {process(transfer.to.value()), kStep, products->begin}});
  }

  ChromeTrace& trace_;
  const PlanPicture& picture_;
  std::size_t first_;
};

}  // namespace

ChromeTrace timeline_of(const ComparedRecordings& all) {
  if (!all.comparison.has_seconds)
    throw InvalidArgument("timeline", "needs predicted times of steps",
                          "to leave it out, or to give a model and a machine");
  const PlanPicture& plain = all.comparison.methods.front().picture;
  ChromeTrace trace;
  trace.about = {{"layer", std::int64_t{all.layers.number_of(plain.layer)}},
                 {"step", std::int64_t{plain.step}},
                 {"clock", "predicted seconds; each method's step begins at 0"}};
  for (const MethodResult& method : all.comparison.methods)
    if (!method.method.fsdp) MethodTrace(trace, method, all.comparison.shape.ranks).add();
  return trace;
}

}  // namespace evenkeel
