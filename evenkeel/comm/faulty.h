// A communicator that fails on purpose, to prove that what stands on it fails well.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "evenkeel/comm/forwarding.h"

namespace evenkeel {

// The exception that an injected failure throws: no evenkeel::Error, as if from code that the library does
// not know.
class InjectedFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Fault {
  enum class Kind {
    fail,     // throw InjectedFault instead of posting the operation
    silence,  // never post it: sleep until the others give up, then throw their cause
    delay,    // sleep `seconds`, then post it
  };
  Kind kind = Kind::fail;
  std::string operation{};  // the name it strikes at: "dispatch", "split"; empty: any
  int at = 1;               // strikes at the at-th operation of that name, counted from 1; 0: at each
  double seconds = 60;      // of delay; of silence, before it ends with InjectedFault
};

class FaultyCommunicator final : public ForwardingCommunicator {
 public:
  // `inner` must outlive this. Communicators split from this one share its fault, and its count.
  FaultyCommunicator(Communicator& inner, Fault fault)
      : ForwardingCommunicator(inner), trap_(std::make_shared<Trap>(Trap{std::move(fault), 0})) {}

  std::unique_ptr<Communicator> split(int color) override;

 private:
  struct Trap {
    Fault fault;
    int met = 0;
  };
  FaultyCommunicator(std::unique_ptr<Communicator> owned, std::shared_ptr<Trap> trap)
      : ForwardingCommunicator(std::move(owned)), trap_(std::move(trap)) {}
  void begin(const char* name, Stream&) override { strike(name); }
  void strike(const char* name);
  void stay_silent(const char* name);

  std::shared_ptr<Trap> trap_;
};

}  // namespace evenkeel
