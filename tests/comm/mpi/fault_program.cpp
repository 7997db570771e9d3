// Runs steps of a layer on MPI ranks, some of which die, fall silent or throw at a given place.
// fault_storm.py starts it under mpirun.
//
// usage: mpi_fault_program DEADLINE CHUNKS KIND RANKS PLACE AT
// KIND   none, kill, stop, exit, throw, slow (longer than the others wait), late (shorter than the deadline)
// RANKS  the faulty ranks, one digit each
// PLACE  start (before MPI starts), set-up (before run_mpi_ranks), the name of an operation, that name and
//        " posted", experts prepare, experts forward, experts backward, step, end (of the body), after
//        (run_mpi_ranks); moment: a time, whatever the rank is doing then
// AT     the fault comes when the rank reaches PLACE for the AT-th time; with moment: milliseconds after the
//        first step
//
// Prints these lines, with fields separated by tabs:
// fault  time, process id; printed just before the fault
// rank   rank, time, "ok" or the error's class, its peer, operation and seconds, its message, the checksums
//        of the steps
// again  the same fields for a second run without a fault, made after a fault within run_mpi_ranks
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/forwarding.h"
#include "evenkeel/comm/mpi/mpi_ranks.h"
#include "tests/layer/rank_layer.h"
#include "tests/layer/wrapped_experts.h"

namespace evenkeel::testing {
namespace {

constexpr int kSteps = 3;
const ExpertShape kExpert{64, 32, Activation::swiglu, false, DataType::f32};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Writes the line unbuffered in one piece, so that it survives the end of the process.
void print_line(const std::string& line) {
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
}

class FaultInjector {
 public:
  FaultInjector(std::string kind, std::string place, int at, double deadline)
      : kind_(std::move(kind)), place_(std::move(place)), at_(at), deadline_(deadline) {}

  void inject(const std::string& place) {
    if (place == place_ && ++count_ == at_) inject();
  }
  // Causes the fault from a separate thread, unless that thread is asked to stop first.
  void inject_at_moment(const std::stop_token& ends) {
    if (place_ != "moment" || kind_ == "none") return;
    const double moment = now() + at_ * 1e-3;
    while (now() < moment && !ends.stop_requested())
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (!ends.stop_requested()) inject();
  }

 private:
  void inject() const {
    if (kind_ == "none") return;
    print_line(fmt::format("fault\t{}\t{}\n", now(), getpid()));
    if (kind_ == "kill") kill(getpid(), SIGKILL);
    if (kind_ == "stop") kill(getpid(), SIGSTOP);
    if (kind_ == "exit") _exit(1);
    if (kind_ == "throw") throw std::runtime_error("a fault of its own");
    // "slow" sleeps until all other ranks have given up on this one and ended.
    const double seconds = kind_ == "slow" ? 2 * deadline_ + 3 : 0.3 * deadline_;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  std::string kind_, place_;
  int at_, count_ = 0;
  double deadline_;
};

class FaultInjectingCommunicator final : public ForwardingCommunicator {
 public:
  FaultInjectingCommunicator(Communicator& inner, FaultInjector& injector)
      : ForwardingCommunicator(inner), injector_(injector) {}

  std::unique_ptr<Communicator> split(int color) override {
    injector_.inject("split");
    return std::unique_ptr<Communicator>(new FaultInjectingCommunicator(inner().split(color), injector_));
  }

 private:
  FaultInjectingCommunicator(std::unique_ptr<Communicator> owned, FaultInjector& injector)
      : ForwardingCommunicator(std::move(owned)), injector_(injector) {}
  void begin(const char* name, Stream&) override {
    name_ = name;
    injector_.inject(name);
  }
  Event end(Event posted, const MessageTraffic&, Stream&) override {
    injector_.inject(fmt::format("{} posted", name_));
    return posted;
  }

  FaultInjector& injector_;
  const char* name_ = "";
};

// FNV-1a hash.
class Checksum {
 public:
  void add(const void* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      hash_ = (hash_ ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211U;
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 14695981039346656037U;
};

// Makes weights travel: routing is skewed, and the planner moves whatever it can.
MoeOptions options_with(FaultInjector& injector, int chunks) {
  MoeOptions options;
  options.planner = {PlannerOptions::Kind::level, 1000, 1, 0};
  const auto around = [&injector](const char* what, const auto& call) {
    injector.inject(fmt::format("experts {}", what));
    call();
  };
  options.cpu().experts = std::make_shared<WrappedExperts<decltype(around)>>(kExpert, around);
  if (chunks == 1) return options;
  options.cpu().memory.recompute = Recompute::chunk;
  options.cpu().memory.rule = {ChunkRule::Kind::equal, chunks, {}};
  options.cpu().memory.keep_plan = true;
  return options;
}

void run_steps(Communicator& plain, FaultInjector& injector, int chunks, std::string& checksums) {
  FaultInjectingCommunicator comm(plain, injector);
  constexpr std::array<std::int64_t, 4> tokens = {120, 80, 160, 40};
  MoeCase problem({{12, 2, kExpert}, {tokens.begin(), tokens.begin() + comm.size()}, 2.0, 0.0}, 4);
  Arena arena(Device::cpu());
  RankLayer rank(problem, comm, arena, options_with(injector, chunks));
  std::jthread at_a_moment;
  for (int step = 0; step < kSteps; ++step) {
    if (step == 1)
      at_a_moment =
          std::jthread([&injector](const std::stop_token& ends) { injector.inject_at_moment(ends); });
    rank.step();
    Checksum sum;
    for (const Tensor* each : {&rank.output(), &rank.grad_hidden()})
      sum.add(each->data(), static_cast<std::size_t>(each->size()) * sizeof(float));
    for (const std::vector<float>& each : rank.grad_experts())
      sum.add(each.data(), each.size() * sizeof(float));
    checksums += fmt::format(" {:x}", sum.value());
    injector.inject("step");
  }
  injector.inject("end");
}

// Describes how `call` ended: "ok", or the error's class, its data and its message.
std::string ending_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return fmt::format("CommError\t{}\t{}\t{}\t{}", error.peer(), error.operation(), error.after_seconds(),
                       error.what());
  } catch (const Error& error) {
    return fmt::format("{}\t\t\t\t{}", error.type(), error.what());
  } catch (const std::exception& error) {
    return fmt::format("exception\t\t\t\t{}", error.what());
  }
  return "ok\t\t\t\t";
}

int run_words(const std::vector<std::string>& words) {
  const double deadline = std::stod(words[1]);
  const int chunks = std::stoi(words[2]);
  const char* const me = std::getenv("OMPI_COMM_WORLD_RANK");
  const std::string rank = me == nullptr ? "0" : me;
  FaultInjector injector(words[4].find(rank) != std::string::npos ? words[3] : "none", words[5],
                         std::stoi(words[6]), deadline);
  FaultInjector no_fault("none", "", 1, deadline);
  const auto print_ending = [&](const char* what, const std::string& ending) {
    print_line(fmt::format("{}\t{}\t{}\t{}\n", what, rank, now(), ending));
  };

  const MpiOptions options{.deadline_seconds = deadline}, patient{.deadline_seconds = 60};
  std::string checksums, others;
  const std::string ending = ending_of([&] {
    injector.inject("start");
    // Warm up under a long deadline: the work that only first steps do must not run into the short one.
    run_mpi_ranks([&](Communicator& comm) { run_steps(comm, no_fault, chunks, others); }, patient);
    others.clear();
    injector.inject("set-up");
    run_mpi_ranks([&](Communicator& comm) { run_steps(comm, injector, chunks, checksums); }, options);
    injector.inject("after");
  });
  print_ending("rank", ending + "\t" + checksums);
  if (ending.starts_with("ok")) return 0;
  if (words[5] != "start" && words[5] != "set-up" && words[5] != "after")
    print_ending("again", ending_of([&] {
                            run_mpi_ranks(
                                [&](Communicator& comm) { run_steps(comm, no_fault, chunks, others); },
                                options);
                          }) + "\t" +
                              others);
  return 5;
}

}  // namespace
}  // namespace evenkeel::testing

int main(int count, char** words) {
  if (count != 7) return 2;
  return evenkeel::testing::run_words({words, words + count});
}
