// Fits a machine's numbers to measured times.
//
// Method     Least squares of log(predicted / measured), so that a microsecond and a second count alike. One
//            number at a time is made larger or smaller, by steps that shrink when neither helps (coordinate
//            search). Numbers that are 0 stay 0: start them above 0 to have them fitted.
// Cost       at most 600 rounds over the times, usually about 50.
// Guarantee  never worse than the start; every number in its range; the same result for the same times.
#pragma once

#include <span>

#include "evenkeel/cost/links.h"
#include "evenkeel/cost/machine.h"

namespace evenkeel {

// A measured time of a layer's products: `experts` experts with `rows` rows each.
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

// Returns `start` with the numbers that describe products fitted to `times`. Throws InvalidArgument for a
// time that is not above 0.
Machine fit_products(const Machine& start, std::span<const ProductTime> times);
// Like fit_products(), for the numbers that describe links, and network interfaces if bytes go across nodes.
Machine fit_exchanges(const Machine& start, std::span<const ExchangeTime> times);

// Returns the seconds that the machine predicts.
double predicted_seconds(const Machine& machine, const ProductTime& of);
double predicted_seconds(const Machine& machine, const ExchangeTime& of);

}  // namespace evenkeel
