#include "evenkeel/comm/thread/internal/world.h"

#include <fmt/format.h>

#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/thread/internal/operation.h"

namespace evenkeel::internal {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

World::World(int ranks, double deadline_seconds)
    : deadline_seconds_(deadline_seconds),
      mailboxes_(static_cast<std::size_t>(ranks)),
      left_(static_cast<std::size_t>(ranks)) {
  constexpr std::size_t kUsual = 16;  // operations pending at once, over a rank's few communicators
  for (Mailbox& mailbox : mailboxes_) mailbox.pending.reserve(kUsual);
}

std::shared_ptr<Group> World::root_group() {
  std::vector<int> everyone(mailboxes_.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  return std::make_shared<Group>(*this, std::move(everyone));
}

void World::abort(Cause cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (aborted()) return;
    cause_ = std::move(cause);
    aborted_.store(true, std::memory_order_release);
  }
  wake_all();
}

void World::abort_for(int rank, const char* action, std::string_view why) noexcept {
  Cause cause{rank, -1, rank, {}};
  try {
    cause.message = fmt::format("rank {} {}: {}", rank, action, why);
  } catch (const std::exception&) {  // out of memory: the text is lost, the rank's number is not
  }
  abort(std::move(cause));
}

Cause World::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void World::stop(int rank, const char* operation, double after_seconds) {
  withdraw_all(rank);
  const Cause why = cause();
  const int peer = why.peer == rank && why.other >= 0 ? why.other : why.peer;
  throw CommError(peer, operation, after_seconds, why.message);
}

void World::check(int rank, const char* operation) {
  if (const char* left = mailbox(rank).left_unfinished; left != nullptr && !aborted()) {
    abort_for(rank, "went on, and left unfinished", left);
  }
  if (aborted()) stop(rank, operation, 0);
}

void World::withdraw_all(int rank) noexcept {
  for (Operation* operation : mailbox(rank).pending) operation->withdraw();
}

void World::leave(int rank) noexcept {
  left_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
  left_count_.fetch_add(1, std::memory_order_release);
  wake_all();
}

void World::wake_all() noexcept {
  for (Mailbox& each : mailboxes_) {
    {
      // A rank that checked before the change is asleep by now, and gets the wakeup.
      const std::lock_guard lock(each.mutex);
      if (each.awaited == nullptr) continue;
    }
    each.wakeup.notify_one();
  }
}

std::shared_ptr<Group> World::join(const Group* parent, std::uint64_t split_count, int color,
                                   const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  const SplitKey key(parent, split_count, color);
  auto found = splits_.find(key);
  // Make the group first: if that fails for lack of memory, no split without a group is left for the next
  // rank.
  if (found == splits_.end())
    found =
        splits_.emplace(key, Split{std::make_shared<Group>(*this, members), static_cast<int>(members.size())})
            .first;
  Split& split = found->second;
  std::shared_ptr<Group> group = split.group;
  if (--split.missing == 0) splits_.erase(found);
  return group;
}

}  // namespace evenkeel::internal
