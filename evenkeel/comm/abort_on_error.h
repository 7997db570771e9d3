// An error on one rank becomes an error on all.
#pragma once

#include <exception>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

// Returns the result of `body`. An exception from `body` ends the communicator, with its message as the cause
// for every other rank, and is thrown on.
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
