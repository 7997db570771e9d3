// A communicator that fails on purpose, to test how its users handle failures.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "evenkeel/comm/forwarding.h"

namespace evenkeel {

// The exception that an injected failure throws. It is not an evenkeel::Error, as if it came from foreign
// code.
class InjectedFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Fault {
  enum class Kind {
    fail,     // throw InjectedFault instead of posting the operation
    silence,  // never post it: sleep until the other ranks give up, then throw their cause
    delay,    // sleep `seconds`, then post it
  };
  Kind kind = Kind::fail;
  std::string operation{};  // operation that fails: "dispatch", "split"; empty: any
  int at = 1;               // fails at the at-th operation of that name, counted from 1; 0: at each
  double seconds = 60;      // delay: how long; silence: how long before it throws InjectedFault
};

class FaultyCommunicator final : public ForwardingCommunicator {
 public:
  // `inner` must outlive this. Communicators split from this one share its fault and its operation count.
  FaultyCommunicator(Communicator& inner, Fault fault)
      : ForwardingCommunicator(inner), state_(std::make_shared<State>(State{std::move(fault), 0})) {}

  std::unique_ptr<Communicator> split(int color) override;

 private:
  struct State {
    Fault fault;
    int count = 0;
  };
  FaultyCommunicator(std::unique_ptr<Communicator> owned, std::shared_ptr<State> state)
      : ForwardingCommunicator(std::move(owned)), state_(std::move(state)) {}
  void begin(const char* name, Stream&) override { inject(name); }
  void inject(const char* name);
  void stay_silent(const char* name);

  std::shared_ptr<State> state_;
};

}  // namespace evenkeel
