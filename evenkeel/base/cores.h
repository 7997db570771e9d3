// How many threads of this process run at one time.
#pragma once

namespace evenkeel {

// The cores that the calling thread may run on, at least 1: fewer than the machine has under taskset, a job
// scheduler, or a container with a set of cores of its own or a quota (cpu.max, rounded up; read once).
int usable_cores();

}  // namespace evenkeel
