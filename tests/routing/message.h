// The message of an error a test expects.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace evenkeel {

// The message of `call` when it throws `Expected`; a failure that says what happened instead, otherwise.
template <class Expected, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace evenkeel
