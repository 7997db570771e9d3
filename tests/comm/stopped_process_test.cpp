// Ranks in a process that is stopped and continued. No rank is blamed for time in which none ran, and a
// silent rank is still found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "evenkeel/base/error.h"
#include "evenkeel/base/running_time.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel {
namespace {

using std::chrono::milliseconds;
using std::this_thread::sleep_for;

// Ranks in a child process, because the test process must keep running.
class RanksInChildProcess {
 public:
  RanksInChildProcess(double deadline_seconds, const std::function<void(Communicator&)>& body) {
    if (pipe(pipe_) != 0 || (process_ = fork()) < 0) throw std::runtime_error("no process");
    if (process_ != 0) return;
    std::string text = "went on to the end";
    try {
      run_ranks(4, body, {.deadline_seconds = deadline_seconds});
    } catch (const std::exception& error) {
      text = error.what();
    }
    const bool written = write(pipe_[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  ~RanksInChildProcess() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    close(pipe_[0]);
    close(pipe_[1]);
  }
  RanksInChildProcess(const RanksInChildProcess&) = delete;
  RanksInChildProcess& operator=(const RanksInChildProcess&) = delete;

  void stop_for(milliseconds time) const {
    kill(process_, SIGSTOP);
    sleep_for(time);
    kill(process_, SIGCONT);
  }
  bool has_ended() {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == process_;
  }
  // How the ranks ended. Call it after the process has ended.
  std::string ending() const {
    char text[1000];
    const ssize_t bytes = read(pipe_[0], text, sizeof(text));
    return {text, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
  }

 private:
  int pipe_[2]{};
  pid_t process_ = 0;
};

bool wait_for_end(RanksInChildProcess& ranks) {
  for (int i = 0; i < 2000 && !ranks.has_ended(); ++i) sleep_for(milliseconds(10));
  return ranks.has_ended();
}

TEST(AStoppedProcess, BlamesNobodyWhenItGoesOn) {
  RanksInChildProcess ranks(0.5, [](Communicator& comm) {
    CpuStream stream;
    std::int64_t steps = 0;
    // Three ranks wait for the fourth nearly all the time.
    for (; steps < 40; ++steps) {
      if (comm.rank().value() == 1) sleep_for(milliseconds(50));
      std::int64_t nothing[] = {0};
      comm.all_reduce(nothing, Reduction::sum, stream, "loop").wait();
    }
  });
  sleep_for(milliseconds(100));
  for (int i = 0; i < 3; ++i) {
    ranks.stop_for(milliseconds(1500));
    sleep_for(milliseconds(200));
  }
  ASSERT_TRUE(wait_for_end(ranks));
  EXPECT_EQ(ranks.ending(), "went on to the end");
}

TEST(AStoppedProcess, StillFindsTheRankThatIsSilentHoweverOftenItIsStopped) {
  RanksInChildProcess ranks(0.3, [](Communicator& comm) {
    CpuStream stream;
    std::int64_t nothing[] = {0};
    for (; comm.rank().value() == 1; comm.throw_if_aborted("silence")) sleep_for(milliseconds(1));
    comm.all_reduce(nothing, Reduction::sum, stream, "loop").wait();
  });
  for (int i = 0; i < 300 && !ranks.has_ended(); ++i) {
    sleep_for(milliseconds(20));
    ranks.stop_for(milliseconds(60));
  }
  ASSERT_TRUE(wait_for_end(ranks));
  EXPECT_THAT(ranks.ending(), ::testing::HasSubstr("rank 1 did not answer in loop"));
}

TEST(RunningTime, CountsAStopAsOneGapAndAllOtherTimeInFull) {
  RunningTime time(milliseconds(10));
  auto now = RunningTime::Clock::now() + milliseconds(5);
  const auto begin = time.look(now);
  for (int i = 0; i < 20; ++i) time.look(now += milliseconds(9));
  EXPECT_EQ(time.look(now) - begin, milliseconds(180));
  EXPECT_EQ(time.look(now += std::chrono::hours(1)) - begin, milliseconds(190));
  EXPECT_EQ(time.look(now += milliseconds(3)) - begin, milliseconds(193));
}

}  // namespace
}  // namespace evenkeel
