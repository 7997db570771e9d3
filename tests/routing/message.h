// Catches the error that a test expects.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace evenkeel {

// Returns the message of the `Expected` that `call` throws. If `call` does not throw one, the test fails and
// says what happened.
template <class Expected, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "a different error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace evenkeel
