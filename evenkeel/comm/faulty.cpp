#include "evenkeel/comm/faulty.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

namespace evenkeel {

namespace {

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

std::unique_ptr<Communicator> FaultyCommunicator::split(int color) {
  inject("split");
  return std::unique_ptr<Communicator>(new FaultyCommunicator(inner().split(color), state_));
}

void FaultyCommunicator::inject(const char* name) {
  const Fault& fault = state_->fault;
  if (!fault.operation.empty() && fault.operation != name) return;
  if (++state_->count != fault.at && fault.at != 0) return;
  switch (fault.kind) {
    case Fault::Kind::fail:
      throw InjectedFault(fmt::format("injected failure at {} number {}", name, state_->count));
    case Fault::Kind::silence:
      return stay_silent(name);
    case Fault::Kind::delay:
      return sleep_seconds(fault.seconds);
  }
}

void FaultyCommunicator::stay_silent(const char* name) {
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> longest(state_->fault.seconds);
  while (std::chrono::steady_clock::now() - start < longest) {
    throw_if_aborted(name);
    sleep_seconds(1e-3);
  }
  throw InjectedFault(
      fmt::format("no rank timed out in {} number {} within {:.3g} s", name, state_->count, longest.count()));
}

}  // namespace evenkeel
