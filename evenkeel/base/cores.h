// How many threads of this process can run at the same time.
#pragma once

namespace evenkeel {

// How many cores the calling thread may use, at least 1. This is fewer than the machine has under taskset, a
// job scheduler, or a container with its own CPU set or quota (cpu.max, rounded up, read once).
int usable_cores();

}  // namespace evenkeel
