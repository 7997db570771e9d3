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
  strike("split");
  return std::unique_ptr<Communicator>(new FaultyCommunicator(inner().split(color), trap_));
}

void FaultyCommunicator::strike(const char* name) {
  const Fault& fault = trap_->fault;
  if (!fault.operation.empty() && fault.operation != name) return;
  if (++trap_->met != fault.at && fault.at != 0) return;
  switch (fault.kind) {
    case Fault::Kind::fail:
      throw InjectedFault(fmt::format("injected failure at {} number {}", name, trap_->met));
    case Fault::Kind::silence:
      return stay_silent(name);
    case Fault::Kind::delay:
      return sleep_seconds(fault.seconds);
  }
}

void FaultyCommunicator::stay_silent(const char* name) {
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> longest(trap_->fault.seconds);
  while (std::chrono::steady_clock::now() - start < longest) {
    throw_if_aborted(name);
    sleep_seconds(1e-3);
  }
  throw InjectedFault(
      fmt::format("no rank timed out in {} number {} within {:.3g} s", name, trap_->met, longest.count()));
}

}  // namespace evenkeel
