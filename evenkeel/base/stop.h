// Reading that its caller no longer waits for. A thread says once which token may stop what it does, and
// loops over large inputs look at it, so that none of the readers between has to hand it on.
#pragma once

#include <stop_token>

namespace evenkeel {

// Thrown out of work that was asked to stop. No Error: nothing is wrong.
struct Stopped {};

// While one lives, the token may stop what this thread does.
class StopScope {
 public:
  explicit StopScope(std::stop_token token);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  std::stop_token token_;
  const std::stop_token* before_;
};

// Throws Stopped if this thread has been asked to stop. Costs a few instructions.
void stop_if_asked();

}  // namespace evenkeel
