#include "evenkeel/study/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/layer/dense_reference.h"

namespace evenkeel {

namespace {

class WorstError {
 public:
  // A tensor's worth of elements; `measured(i)` beside reference[i]. Several calls may make up one tensor.
  template <class Measured>
  void add(std::span<const double> reference, const Measured& measured) {
    for (std::size_t i = 0; i < reference.size(); ++i) see(reference[i], measured(i));
  }
  void add_zeros(std::span<const float> measured) {
    for (float value : measured) see(0, static_cast<double>(value));
  }
  // Throws Unsupported where an element is no number, so that no error can be given.
  void end_tensor(const char* name) {
    if (overflow_)
      throw Unsupported(
          fmt::format("element {} of the {} is {}, where the dense evaluation has {:.3g}: these weights and "
                      "rows are beyond what the step's type can compute with",
                      overflow_->element, name, overflow_->measured, overflow_->reference));
    worst_.max_abs_error = std::max(worst_.max_abs_error, error_);
    if (error_ > 0) worst_.max_rel_error = std::max(worst_.max_rel_error, error_ / magnitude_);
    error_ = magnitude_ = 0;
    seen_ = 0;
  }
  const Accuracy& worst() const { return worst_; }

 private:
  struct Overflow {
    std::int64_t element;
    double reference, measured;
  };

  void see(double reference, double measured) {
    const std::int64_t element = seen_++;
    if (!(std::isfinite(reference) && std::isfinite(measured))) {
      if (!overflow_) overflow_ = {element, reference, measured};
      return;
    }
    error_ = std::max(error_, std::abs(measured - reference));
    magnitude_ = std::max(magnitude_, std::abs(reference));
  }

  Accuracy worst_;
  double error_ = 0;
  double magnitude_ = 0;
  std::int64_t seen_ = 0;  // elements of this tensor
  std::optional<Overflow> overflow_;
};

using Part = std::vector<double> DenseResult::Expert::*;

// One tensor of all experts' gradients; experts without tokens have no reference, and must have zeros.
void compare_part(const DenseResult& reference, Part part, const char* name, const Tensor& measured,
                  WorstError& error) {
  const auto experts = std::ssize(reference.grad_experts);
  const std::int64_t each = measured.count() / experts;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::vector<double>& expected = reference.grad_experts[static_cast<std::size_t>(e)].*part;
    const std::span values(reinterpret_cast<const float*>(measured.at(e * each)),
                           static_cast<std::size_t>(each));
    if (expected.empty())
      error.add_zeros(values);
    else
      error.add(expected, [&](std::size_t i) { return static_cast<double>(values[i]); });
  }
  error.end_tensor(name);
}

Accuracy compare(const DenseResult& reference, const StepResults& results, bool backward) {
  WorstError error;
  const auto compare_rows = [&](const char* name, std::span<const double> expected, const Tensor& rows) {
    error.add(expected, [&](std::size_t i) { return rows.value(static_cast<std::int64_t>(i)); });
    error.end_tensor(name);
  };
  compare_rows("output", reference.output, results.output);
  if (!backward) return error.worst();
  compare_rows("gradient of hidden rows", reference.grad_hidden, results.grad_hidden);
  error.add(reference.grad_router_weights,
            [&](std::size_t i) { return static_cast<double>(results.grad_router_weights[i]); });
  error.end_tensor("gradient of router weights");
  const ExpertModel& gradients = results.grad_experts;
  compare_part(reference, &DenseResult::Expert::gate_up, "gradient of gate_up", gradients.gate_up, error);
  compare_part(reference, &DenseResult::Expert::down, "gradient of down", gradients.down, error);
  if (gradients.shape.biases) {
    compare_part(reference, &DenseResult::Expert::gate_up_bias, "gradient of gate_up_bias",
                 gradients.gate_up_bias, error);
    compare_part(reference, &DenseResult::Expert::down_bias, "gradient of down_bias", gradients.down_bias,
                 error);
  }
  return error.worst();
}

DenseResult evaluate(const ExperimentSetup& setup, const Batch& batch) {
  const ExpertShape& shape = setup.shape.expert;
  const auto rows = [&](const Tensor& all) {
    return ConstRows{all.at(0), batch.num_tokens(), shape.hidden, shape.type};
  };
  return evaluate_dense(shape, setup.inputs->experts.all(), rows(setup.inputs->hidden), batch.all(),
                        setup.backward ? rows(setup.inputs->grad_output) : ConstRows{});
}

// Output of the same layer on one rank, under ep.
std::vector<std::byte> one_rank_output(const ExperimentSetup& setup, const Batch& batch) {
  ExperimentSetup alone = setup;
  alone.placement = LayerPlacement::contiguous(setup.shape.num_experts, 1);
  alone.backward = false;
  alone.rounds = 0;
  alone.timelines = false;
  alone.reference = plain_ep();
  alone.candidates = {alone.reference};
  std::vector<std::byte> output;
  measure(alone, std::vector{batch.on_one_rank()}, [&](std::size_t, const StepResults& results, bool) {
    output.assign(results.output.bytes().begin(), results.output.bytes().end());
  });
  return output;
}

// Far beyond what rounding can do, even in bf16 where results of both signs add up to little.
double most_error(DataType type) {
  return type == DataType::f32 ? 1e-2 : 1.0;
}

void require_right(const ExperimentSetup& setup, const std::vector<Accuracy>& accuracy) {
  for (std::size_t candidate = 0; candidate < accuracy.size(); ++candidate) {
    const std::string_view planner = name_of(setup.candidates[candidate].planner.kind);
    const double error = accuracy[candidate].max_rel_error;
    const bool vanishes = accuracy[candidate].max_abs_error < 1e-30;  // below what f32 holds in full
    if (!vanishes && !(error <= most_error(setup.shape.expert.type)))
      throw Unsupported(
          fmt::format("the step under {} is wrong on this machine: its largest error is {:.3g} of the "
                      "largest value of the dense evaluation; please report it",
                      planner, error));
    if (accuracy[candidate].bitwise_equal == false)
      throw Unsupported(
          fmt::format("the step under {} is wrong on this machine: its output has other bits than "
                      "one rank under ep gives, which this CPU passed the test for; please report it",
                      planner));
  }
}

}  // namespace

CheckedFigures measure_and_check(const ExperimentSetup& setup, const Batch& batch, const RoundProgress& progress) {
  const DenseResult reference = evaluate(setup, batch);
  const std::vector<std::byte> expected = one_rank_output(setup, batch);
  CheckedFigures checked;
  checked.accuracy.resize(setup.candidates.size());
  const auto inspect = [&](std::size_t candidate, const StepResults& results, bool bitwise) {
    Accuracy& accuracy = checked.accuracy[candidate];
    accuracy = compare(reference, results, setup.backward);
    if (bitwise) accuracy.bitwise_equal = std::ranges::equal(results.output.bytes(), expected);
  };
  checked.figures = std::move(measure(setup, std::vector{batch}, inspect, progress).front());
  require_right(setup, checked.accuracy);
  return checked;
}

}  // namespace evenkeel
