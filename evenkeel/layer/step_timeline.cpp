#include "evenkeel/layer/step_timeline.h"

#include <algorithm>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/check.h"
#include "evenkeel/base/clock.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

StepTimeline::StepTimeline(Arena& arena, std::size_t points) : arena_(arena) {
  if (arena.in_use_bytes() > 0)
    throw InvalidArgument("arena", "has already lent " + format_bytes(arena.in_use_bytes()),
                          "a timeline made before the first allocation");
  record_.phases.reserve(points);
  record_.in_use.reserve(points);
  record_.seconds.reserve(points);
  record_.buffers.reserve(points);
  alive_.reserve(points);
  note(0);
  arena.watch(this);
}

void StepTimeline::restart() {
  for (std::size_t i = 0; i < alive_.size(); ++i) {
    StepRecord::Lent& lent = record_.buffers[i] = record_.buffers[alive_[i]];
    lent.begin = 0;
    alive_[i] = i;
  }
  record_.buffers.resize(alive_.size());
  record_.phases.clear();
  record_.in_use.clear();
  record_.seconds.clear();
  note(arena_.in_use_bytes());
}

StepRecord StepTimeline::record() const {
  StepRecord record = record_;
  for (const std::size_t alive : alive_) record.buffers[alive].end = record.in_use.size();
  return record;
}

void StepTimeline::note(std::int64_t in_use) {
  record_.in_use.push_back(in_use);
  record_.seconds.push_back(wall_seconds());
}

void StepTimeline::lent(const Loan& loan, std::int64_t in_use) noexcept {
  alive_.push_back(record_.buffers.size());
  record_.buffers.push_back({loan, record_.in_use.size(), 0});
  note(in_use);
}

void StepTimeline::given_back(std::int64_t begin, std::int64_t in_use) noexcept {
  // Searched from the end, since the last buffer lent is usually given back first.
  const auto found = std::find_if(alive_.rbegin(), alive_.rend(),
                                  [&](std::size_t at) { return record_.buffers[at].loan.begin == begin; });
  EVENKEEL_CHECK(found != alive_.rend());
  record_.buffers[*found].end = record_.in_use.size();
  alive_.erase(std::next(found).base());
  note(in_use);
}

}  // namespace evenkeel
