// A communicator that fails on purpose, to prove that what stands on it fails well.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "evenkeel/comm/communicator.h"

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

class FaultyCommunicator final : public Communicator {
 public:
  // `inner` must outlive this. Communicators split from this one share its fault, and its count.
  FaultyCommunicator(Communicator& inner, Fault fault);
  ~FaultyCommunicator() override;

  RankId rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Event all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream& stream,
                   const char* name = "all_gather") override;
  Event send_receive(std::span<const SendSlice> sends, std::span<const ReceiveSlice> receives, Stream& stream,
                     const char* name) override;
  Event all_reduce(std::span<std::int64_t> values, Reduction reduction, Stream& stream,
                   const char* name = "all_reduce") override;
  Event all_reduce(std::span<double> values, Reduction reduction, Stream& stream,
                   const char* name = "all_reduce") override;
  Event barrier(Stream& stream, const char* name = "barrier") override;
  std::unique_ptr<Communicator> split(int color) override;
  void throw_if_aborted(const char* name) override { inner_.throw_if_aborted(name); }
  void abort(const std::string& cause) noexcept override { inner_.abort(cause); }

 private:
  struct Trap {
    Fault fault;
    int met = 0;
  };
  FaultyCommunicator(std::unique_ptr<Communicator> owned, std::shared_ptr<Trap> trap);
  void strike(const char* name);
  void stay_silent(const char* name);

  std::unique_ptr<Communicator> owned_;  // of a split communicator
  Communicator& inner_;
  std::shared_ptr<Trap> trap_;
};

}  // namespace evenkeel
