#include "evenkeel/cost/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

constexpr int kRounds = 600;
constexpr double kFirstStep = 0.5;  // change of a number's logarithm
constexpr double kLastStep = 1e-6;

using Numbers = std::vector<const MachineNumber*>;

Numbers numbers_named(std::initializer_list<double Machine::*> values) {
  Numbers found;
  for (const MachineNumber& number : machine_numbers())
    if (std::ranges::find(values, number.value) != values.end()) found.push_back(&number);
  return found;
}

template <class Time>
double squared_errors(const Machine& machine, std::span<const Time> times) {
  double sum = 0;
  for (const Time& time : times) {
    const double error = std::log(predicted_seconds(machine, time) / time.seconds);
    sum += error * error;
  }
  return sum;
}

template <class Time>
Machine fit(Machine best, const Numbers& numbers, std::span<const Time> times) {
  for (std::size_t i = 0; i < times.size(); ++i)
    if (const double seconds = times[i].seconds; !(seconds > 0 && std::isfinite(seconds)))
      throw InvalidArgument("times", fmt::format("element {} is {} s", i, seconds), "finite times above 0");
  double least = squared_errors(best, times);
  std::vector<double> steps(numbers.size(), kFirstStep);
  for (int round = 0; round < kRounds && std::ranges::max(steps) > kLastStep; ++round)
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto improves = [&](double factor) {
        Machine tried = best;
        double& value = tried.*numbers[i]->value;
        value = std::clamp(value * factor, numbers[i]->least, numbers[i]->most);
        const double errors = squared_errors(tried, times);
        if (!(errors < least)) return false;
        best = tried;
        least = errors;
        return true;
      };
      const bool improved = improves(std::exp(steps[i])) || improves(std::exp(-steps[i]));
      steps[i] *= improved ? 1.3 : 0.5;
    }
  return best;
}

}  // namespace

double predicted_seconds(const Machine& machine, const ProductTime& of) {
  return machine.products_seconds + of.experts * expert_seconds(machine, of.work, of.rows);
}

double predicted_seconds(const Machine& machine, const ExchangeTime& of) {
  return exchange_seconds(machine, of.bytes);
}

Machine fit_products(const Machine& start, std::span<const ProductTime> times) {
  return fit(
      start,
      numbers_named({&Machine::flops_per_second, &Machine::inner_half, &Machine::weight_bytes_per_second,
                     &Machine::overlap, &Machine::products_seconds}),
      times);
}

Machine fit_exchanges(const Machine& start, std::span<const ExchangeTime> times) {
  Numbers numbers =
      numbers_named({&Machine::link_bytes_per_second, &Machine::link_seconds, &Machine::ramp_bytes});
  if (std::ranges::any_of(times, [](const ExchangeTime& time) { return time.bytes.across > 0; }))
    for (const MachineNumber* number : numbers_named({&Machine::nic_bytes_per_second, &Machine::nic_seconds}))
      numbers.push_back(number);
  return fit(start, numbers, times);
}

}  // namespace evenkeel
