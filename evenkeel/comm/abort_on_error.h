// What fails on one rank fails on all.
#pragma once

#include <exception>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

// The result of `body`. What it throws ends the communicator, with its message as the cause for every other
// rank, and is thrown on.
template <class Body>
auto abort_on_error(Communicator& comm, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    comm.abort(error.what());
    throw;
  } catch (...) {
    comm.abort("something that is no std::exception was thrown");
    throw;
  }
}

}  // namespace evenkeel
