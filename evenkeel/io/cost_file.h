// The numbers of a machine, as a file (docs/formats.md#cost).
#pragma once

#include <string>

#include "evenkeel/cost/machine.h"
#include "evenkeel/io/byte_source.h"

namespace evenkeel {

// The file has either form; in the old one all links have one rate. Throws ParseError, naming the key: one
// that is missing or not known, a number that no machine has.
Machine read_cost(const ByteSource& source);

// The machine and layer of a measurement, as names and values for whoever reads the file.
struct MeasuredOn {
  std::string cpu;
  int cores = 0;
  int ranks = 0;
  std::string layer;
};
void write_cost(const Machine& machine, const MeasuredOn& on, const std::string& path);

}  // namespace evenkeel
