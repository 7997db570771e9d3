// Tracks which ranks are submitting work that uses other ranks' memory, so that no rank frees its memory too
// early.
//
// Ranks are threads of one process. The work that a rank submits reads other ranks' memory and waits for
// their events. A fast rank may have ended its last step before a slower one has submitted its own.
#pragma once

#include <condition_variable>
#include <mutex>
#include <numeric>
#include <vector>

#include "evenkeel/base/index.h"

namespace evenkeel::cuda {

class PeerAccessTracker {
 public:
  explicit PeerAccessTracker(int ranks) : scopes_(static_cast<std::size_t>(ranks), 0) {}

  void enter(RankId rank) {
    const std::lock_guard lock(mutex_);
    ++scopes_[rank.offset()];
  }
  void leave(RankId rank) {
    const std::lock_guard lock(mutex_);
    --scopes_[rank.offset()];
    left_.notify_all();
  }
  // Whether no other rank is inside a scope.
  bool is_alone(RankId rank) {
    const std::lock_guard lock(mutex_);
    return others(rank) == 0;
  }
  void await_others(RankId rank) {
    std::unique_lock lock(mutex_);
    left_.wait(lock, [&] { return others(rank) == 0; });
  }

 private:
  int others(RankId rank) const {
    return std::accumulate(scopes_.begin(), scopes_.end(), 0) - scopes_[rank.offset()];
  }

  std::mutex mutex_;
  std::condition_variable left_;
  std::vector<int> scopes_;
};

// A rank holds a scope while it submits work that needs other ranks' memory or events.
class PeerAccessScope {
 public:
  PeerAccessScope(PeerAccessTracker& access, RankId rank) : access_(access), rank_(rank) {
    access_.enter(rank_);
  }
  PeerAccessScope(const PeerAccessScope&) = delete;
  PeerAccessScope& operator=(const PeerAccessScope&) = delete;
  ~PeerAccessScope() { access_.leave(rank_); }

 private:
  PeerAccessTracker& access_;
  RankId rank_;
};

}  // namespace evenkeel::cuda
