#include "evenkeel/comm/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/gather.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel {

namespace {

// The rank with the smallest count; -1 if all counts are equal.
int least_of(const std::vector<std::int64_t>& counts) {
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return *least == *most ? -1 : static_cast<int>(least - counts.begin());
}

}  // namespace

void Progress::find_culprit(double seconds) {
  const std::vector<std::int64_t> counts = gather(*mine_, count_, name_);
  const int blamed = least_of(counts);
  const std::string why =
      blamed < 0
          ? fmt::format(
                "{} did not end within {:.3g} s, though all ranks take part; check the links between them",
                name_, seconds)
          : fmt::format("{} did not end within {:.3g} s: rank {} has enqueued {} operations, others {}",
                        name_, seconds, blamed, counts[static_cast<std::size_t>(blamed)],
                        *std::max_element(counts.begin(), counts.end()));
  // All ranks now have the same counts and must stop. Abort control only after every rank has the counts, so
  // that each throws this message and not another rank's abort.
  try {
    CpuStream last;
    mine_->barrier(last, name_).wait();
  } catch (const CommError&) {
    throw CommError(blamed, name_, seconds, why);
  }
  control_.abort(why);
  throw CommError(blamed, name_, seconds, why);
}

void Progress::fail(const std::string& cause, double seconds) {
  control_.abort(cause);
  control_.throw_if_aborted(name_);
  throw CommError(control_.rank().value(), name_, seconds, cause);
}

}  // namespace evenkeel
