#include "evenkeel/comm/thread/run_ranks.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/base/system_limits.h"
#include "evenkeel/comm/thread/internal/communicator.h"
#include "evenkeel/comm/thread/internal/world.h"

namespace evenkeel {

namespace {

using internal::Group;
using internal::ThreadCommunicator;
using internal::World;

constexpr int most_ranks = 1024;
constexpr double longest_deadline_seconds = 1e8;

void check(int ranks, const ThreadOptions& options) {
  if (ranks < 1 || ranks > most_ranks) {
    throw InvalidArgument("ranks", fmt::format("{} ranks cannot be started", ranks),
                          fmt::format("1..{}", most_ranks));
  }
  if (!(options.deadline_seconds > 0 && options.deadline_seconds <= longest_deadline_seconds)) {
    throw InvalidArgument("deadline_seconds", fmt::format("is {:g}", options.deadline_seconds),
                          fmt::format("above 0, at most {:g}", longest_deadline_seconds));
  }
}

// Returns what the body threw, after all other ranks were told. Never throws, not even if memory runs out,
// because an exception here would end the process.
std::exception_ptr run_one(const std::shared_ptr<Group>& group, int rank,
                           const std::function<void(Communicator&)>& body) noexcept {
  World& world = group->world();
  std::exception_ptr failure;
  {
    std::optional<ThreadCommunicator> communicator;
    try {
      body(communicator.emplace(group, rank));
    } catch (const std::exception& error) {
      failure = std::current_exception();
      world.abort_for(rank, "failed", error.what());
    } catch (...) {
      failure = std::current_exception();
      world.abort_for(rank, "failed", "with an exception of unknown type");
    }
  }
  if (const char* left = world.mailbox(rank).left_unfinished; left != nullptr && !world.aborted()) {
    world.abort_for(rank, "ended, and left unfinished", left);
    try {
      throw CommError(rank, left, 0, world.cause().message);
    } catch (...) {  // the error above, or std::bad_alloc
      failure = std::current_exception();
    }
  }
  world.leave(rank);
  return failure;
}

// The exception of run_ranks() if only `made` threads could be started.
std::exception_ptr why_not_started(int ranks, int made, const std::exception& error) noexcept {
  try {
    if (const auto* refused = dynamic_cast<const std::system_error*>(&error))
      throw too_few_threads(ranks, made, "one for each rank", *refused);
    throw;
  } catch (...) {
    return std::current_exception();
  }
}

void rethrow_first(const World& world, const std::vector<std::exception_ptr>& failures) {
  if (world.aborted()) {
    const int first = world.cause().found_by;
    if (first >= 0 && failures[static_cast<std::size_t>(first)]) {
      std::rethrow_exception(failures[static_cast<std::size_t>(first)]);
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

void run_ranks(int ranks, const std::function<void(Communicator&)>& body, const ThreadOptions& options) {
  check(ranks, options);
  World world(ranks, options.deadline_seconds);
  const std::shared_ptr<Group> group = world.root_group();
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  std::exception_ptr start_failure;
  {
    std::vector<std::jthread> threads;
    try {
      threads.reserve(failures.size());
      for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back(
            [&, rank] { failures[static_cast<std::size_t>(rank)] = run_one(group, rank, body); });
    } catch (const std::exception& error) {
      start_failure = why_not_started(ranks, static_cast<int>(threads.size()), error);
      world.abort_for(static_cast<int>(threads.size()), "could not be started", error.what());
    }
  }
  if (start_failure) std::rethrow_exception(start_failure);
  rethrow_first(world, failures);
}

}  // namespace evenkeel
