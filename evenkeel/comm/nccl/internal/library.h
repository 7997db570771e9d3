// NCCL, found when it is first wanted: programs start where it is not installed.
#pragma once

#include <nccl.h>

namespace evenkeel::internal {

// Every function that is called, and its name here.
#define EVENKEEL_FOR_EACH_NCCL_FUNCTION(DO) \
  DO(ncclGetUniqueId, get_unique_id)        \
  DO(ncclCommInitRankConfig, init_rank)     \
  DO(ncclCommFinalize, finalize)            \
  DO(ncclCommDestroy, destroy)              \
  DO(ncclCommAbort, abort)                  \
  DO(ncclCommGetAsyncError, async_error)    \
  DO(ncclGetErrorString, error_string)      \
  DO(ncclGroupStart, group_start)           \
  DO(ncclGroupEnd, group_end)               \
  DO(ncclSend, send)                        \
  DO(ncclRecv, receive)                     \
  DO(ncclAllGather, all_gather)

struct Library {
#define EVENKEEL_DECLARE(function, name) decltype(&function) name;  // NOLINT(bugprone-macro-parentheses)
  EVENKEEL_FOR_EACH_NCCL_FUNCTION(EVENKEEL_DECLARE)
#undef EVENKEEL_DECLARE

  // Throws Unsupported where there is none.
  static const Library& get();
};

}  // namespace evenkeel::internal
