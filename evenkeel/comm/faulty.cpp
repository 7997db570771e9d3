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

FaultyCommunicator::FaultyCommunicator(Communicator& inner, Fault fault)
    : inner_(inner), trap_(std::make_shared<Trap>(Trap{std::move(fault), 0})) {}

FaultyCommunicator::FaultyCommunicator(std::unique_ptr<Communicator> owned, std::shared_ptr<Trap> trap)
    : owned_(std::move(owned)), inner_(*owned_), trap_(std::move(trap)) {}

FaultyCommunicator::~FaultyCommunicator() = default;

Event FaultyCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                     Stream& stream, const char* name) {
  strike(name);
  return inner_.all_gather(mine, all, stream, name);
}

Event FaultyCommunicator::send_receive(std::span<const SendSlice> sends,
                                       std::span<const ReceiveSlice> receives, Stream& stream,
                                       const char* name) {
  strike(name);
  return inner_.send_receive(sends, receives, stream, name);
}

Event FaultyCommunicator::all_reduce(std::span<std::int64_t> values, Reduction reduction, Stream& stream,
                                     const char* name) {
  strike(name);
  return inner_.all_reduce(values, reduction, stream, name);
}

Event FaultyCommunicator::all_reduce(std::span<double> values, Reduction reduction, Stream& stream,
                                     const char* name) {
  strike(name);
  return inner_.all_reduce(values, reduction, stream, name);
}

Event FaultyCommunicator::barrier(Stream& stream, const char* name) {
  strike(name);
  return inner_.barrier(stream, name);
}

std::unique_ptr<Communicator> FaultyCommunicator::split(int color) {
  strike("split");
  return std::unique_ptr<Communicator>(new FaultyCommunicator(inner_.split(color), trap_));
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
    inner_.throw_if_aborted(name);
    sleep_seconds(1e-3);
  }
  throw InjectedFault(
      fmt::format("nobody missed {} number {} for {:.3g} s", name, trap_->met, longest.count()));
}

}  // namespace evenkeel
