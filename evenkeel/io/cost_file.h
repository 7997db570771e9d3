// The numbers of a machine, as a file (docs/formats.md#cost).
#pragma once

#include <string>

#include "evenkeel/cost/machine.h"
#include "evenkeel/io/byte_source.h"

namespace evenkeel {

// Reads both versions of the format; in the old one all links have the same rate. Throws ParseError, naming
// the key, if a key is missing or unknown, or a number is out of range.
Machine read_cost(const ByteSource& source);

// Which machine and layer were measured; for people who read the file.
struct MeasuredOn {
  std::string cpu;
  int cores = 0;
  int ranks = 0;
  std::string layer;
};
void write_cost(const Machine& machine, const MeasuredOn& on, const std::string& path);

}  // namespace evenkeel
