// NCCL's functions, loaded on first use: programs also start where NCCL is not installed.
#pragma once

#include <nccl.h>

namespace evenkeel::internal {

// Every NCCL function that is called, and its name in Library.
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

  // Throws Unsupported if NCCL is not found.
  static const Library& get();
};

}  // namespace evenkeel::internal
