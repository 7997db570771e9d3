// Turns an error on one rank into an error on all ranks.
#pragma once

#include <exception>

#include "evenkeel/comm/communicator.h"

namespace evenkeel {

// Returns the result of `body`. If `body` throws, aborts the communicator with the exception's message as the
// cause for every other rank, and rethrows.
template <class Body>
auto abort_on_error(Communicator& comm, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    comm.abort(error.what());
    throw;
  } catch (...) {
    comm.abort("an exception of unknown type was thrown");
    throw;
  }
}

}  // namespace evenkeel
