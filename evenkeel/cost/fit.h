// A machine's numbers, found from measured times.
//
// Method     Least squares of log(predicted / measured), so that a microsecond and a second count alike. One
//            number at a time is made larger or smaller, by steps that shrink where neither helps (coordinate
//            search). Numbers that are 0 stay 0: start them above 0 to have them found.
// Cost       at most 600 rounds over the times, usually some 50.
// Guarantee  never worse than the start; every number in its range; the same result for the same times.
#pragma once

#include <span>

#include "evenkeel/cost/links.h"
#include "evenkeel/cost/machine.h"

namespace evenkeel {

// The time of a layer of so many experts, of so many rows each.
struct ProductTime {
  ExpertWork work;
  double experts = 1;
  double rows = 0;
  double seconds = 0;
};

struct ExchangeTime {
  PortBytes bytes;
  double seconds = 0;
};

// `start` with the numbers of products that these times show. Throws InvalidArgument for a time that is not
// above 0.
Machine fit_products(const Machine& start, std::span<const ProductTime> times);
// As fit_products(), with those of links; of network interfaces where some bytes go across.
Machine fit_exchanges(const Machine& start, std::span<const ExchangeTime> times);

// Returns the seconds that the machine predicts.
double predicted_seconds(const Machine& machine, const ProductTime& of);
double predicted_seconds(const Machine& machine, const ExchangeTime& of);

}  // namespace evenkeel
