// ExpertFfn for CPUs, on oneDNN: tiles of at most 384 rows are gathered, multiplied, activated and scattered
// while they are in the cache.
//
// Products run on a fixed ladder of row counts. Its primitives are made once per shape and shared by all
// ranks of the process, so a new row count costs nothing extra. A self-test at construction keeps only the
// row counts (rungs) that give the same bits; see internal/row_ladder.h.
#pragma once

#include <memory>

#include "evenkeel/compute/expert_ffn.h"

namespace evenkeel {

// The feed-forward network of a shape. Immutable, so any number of threads may use it at once. Calls with
// equal arguments share one object. `with_backward` also makes what backward needs.
// Throws InvalidArgument for a shape without rows or columns, and Unsupported if oneDNN or the CPU cannot
// multiply the type.
std::shared_ptr<const ExpertFfn> make_cpu_expert_ffn(const ExpertShape& shape, bool with_backward);

}  // namespace evenkeel
