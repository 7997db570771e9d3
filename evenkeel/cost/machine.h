// A machine in numbers: the speed of a rank's products and links, and the fixed costs of a step. Predicts the
// seconds of an expert's products. links.h and spill_costs.h predict other times from these numbers; fit.h
// fits them to measured times.
//
// Model     An expert's products of m rows take max(m r, g) + (1 - overlap) min(m r, g): r is the seconds per
//           row if there are many rows, g the seconds to read the weights. This is the roofline model
//           (Williams, Waterman and Patterson, 2009), plus the part of the shorter time that a machine does
//           not overlap.
//           A product of inner dimension K runs at K / (K + inner_half) of the machine's rate.
// Checked   on published times of 14 shapes of gated experts (tests/cost/published_test.cpp).
//
// A Topology (topology/topology.h) says which rank is on which node, and may describe single links. Functions
// that need both take a Machine and a Topology.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "evenkeel/topology/devices.h"

namespace evenkeel {

// The defaults are those of one CPU core, roughly.
struct Machine {
  // Products of one rank.
  double flops_per_second = 1.5e11;         // many rows, long inner dimensions
  double inner_half = 0;                    // inner dimension whose products reach half of flops_per_second
  double weight_bytes_per_second = 1.0e10;  // few rows, which wait for their weights
  double overlap = 0;                       // 0..1: the part of the shorter time that the longer hides
  double products_seconds = 0;              // start-up of a layer's products

  // Links (links.h), one direction.
  double link_bytes_per_second = 4.0e9;  // of a rank, to ranks of its node
  double link_seconds = 0;               // latency
  double nic_bytes_per_second = 4.0e9;   // of a network interface, to other nodes
  double nic_seconds = 0;                // latency
  double ranks_per_nic = 1;              // ranks of a node that share an interface
  double ramp_bytes = 0;                 // messages far smaller than this reach half of these rates

  double chunk_seconds = 6.0e-5;  // messages and bookkeeping of a chunk

  friend bool operator==(const Machine&, const Machine&) = default;
};

// One number of a machine, with its name in files and its allowed range. Machines within these ranges have
// finite predicted times.
struct MachineNumber {
  using Value = double Machine::*;

  const char* name;
  Value value;
  double least;
  double most;
  bool is_whole = false;

  // False for NaN.
  bool allows(double number) const;
  std::string allowed() const;  // "0..1"
};
std::span<const MachineNumber> machine_numbers();

// A machine of such devices. It reaches the assumed part of the vendor's figures (topology/devices.h), and
// its latencies are 0. A preset does not describe the network, so network interfaces get the rate of the
// device's links.
Machine device_machine(const DevicePreset& device);

// Throws InvalidArgument for a number outside its range; the error calls the machine `argument`.
void require_machine(const Machine& machine, const char* argument);

// The forward products of one expert.
struct ExpertWork {
  double elements = 0;  // weights, each a multiply-add for a row
  double outputs = 0;   // numbers that the products give for a row
  double bytes = 0;     // of the weights, as the products read them
};
// `matrices`: 3 where the expert is gated (gate, up, down), else 2 (up, down), without biases.
ExpertWork expert_work(std::int64_t hidden, std::int64_t intermediate, int matrices,
                       std::int64_t element_bytes);

// Seconds per row if the expert has many rows.
double row_seconds(const Machine& machine, const ExpertWork& work);
// Seconds to read `bytes` bytes of weights.
double read_seconds(const Machine& machine, double bytes);
// Seconds of one expert's rows. `rows` may be an average: below one row, only that part of the weights is
// read.
double expert_seconds(const Machine& machine, const ExpertWork& work, double rows);

}  // namespace evenkeel
