#include "evenkeel/study/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/base/hash.h"
#include "evenkeel/layer/dense_reference.h"

namespace evenkeel {

namespace {

// Collects the errors of one tensor, element by element.
class TensorError {
 public:
  explicit TensorError(const char* name) : name_(name) {}

  // Adds one element. Throws Unsupported if a value is not finite, because the error is then undefined.
  void see(double reference, double measured) {
    if (!(std::isfinite(reference) && std::isfinite(measured)))
      throw Unsupported(fmt::format(
          "element {} of the {} is {}, but the dense evaluation has {:.3g}: these weights and rows "
          "overflow the step's number type; use smaller ones",
          seen_, name_, measured, reference));
    error_ = std::max(error_, std::abs(measured - reference));
    magnitude_ = std::max(magnitude_, std::abs(reference));
    ++seen_;
  }
  void add_to(Accuracy& worst) const {
    worst.max_abs_error = std::max(worst.max_abs_error, error_);
    if (error_ > 0) worst.max_rel_error = std::max(worst.max_rel_error, error_ / magnitude_);
  }

 private:
  const char* name_;
  double error_ = 0;
  double magnitude_ = 0;
  std::int64_t seen_ = 0;
};

// Compares measured(i) with expected[i] for every i.
template <class Measured>
void compare_tensor(const char* name, std::span<const double> expected, const Measured& measured,
                    Accuracy& worst) {
  TensorError error(name);
  for (std::size_t i = 0; i < expected.size(); ++i) error.see(expected[i], measured(i));
  error.add_to(worst);
}

// Compares one gradient tensor of all experts. Experts without tokens have no reference; their gradients must
// be zero.
void compare_gradients(const char* name, const DenseResult& reference,
                       std::vector<double> DenseResult::Expert::*part, const Tensor& measured,
                       Accuracy& worst) {
  TensorError error(name);
  const std::int64_t each = measured.count() / std::ssize(reference.grad_experts);
  for (std::int64_t e = 0; e < std::ssize(reference.grad_experts); ++e) {
    const std::vector<double>& expected = reference.grad_experts[static_cast<std::size_t>(e)].*part;
    const auto* const values = reinterpret_cast<const float*>(measured.at(e * each));
    for (std::int64_t i = 0; i < each; ++i)
      error.see(expected.empty() ? 0.0 : expected[static_cast<std::size_t>(i)],
                static_cast<double>(values[i]));
  }
  error.add_to(worst);
}

Accuracy compare(const DenseResult& reference, const StepResults& results, bool backward) {
  using Expert = DenseResult::Expert;
  Accuracy worst;
  const auto rows = [](const Tensor& tensor) {
    return [all = &tensor](std::size_t i) { return all->value(static_cast<std::int64_t>(i)); };
  };
  compare_tensor("output", reference.output, rows(results.output), worst);
  if (!backward) return worst;
  compare_tensor("gradient of hidden rows", reference.grad_hidden, rows(results.grad_hidden), worst);
  compare_tensor(
      "gradient of router weights", reference.grad_router_weights,
      [&](std::size_t i) { return static_cast<double>(results.grad_router_weights[i]); }, worst);
  const ExpertModel& of = results.grad_experts;
  compare_gradients("gradient of gate_up", reference, &Expert::gate_up, of.gate_up, worst);
  compare_gradients("gradient of down", reference, &Expert::down, of.down, worst);
  if (!of.shape.biases) return worst;
  compare_gradients("gradient of gate_up_bias", reference, &Expert::gate_up_bias, of.gate_up_bias, worst);
  compare_gradients("gradient of down_bias", reference, &Expert::down_bias, of.down_bias, worst);
  return worst;
}

std::uint64_t checksum_of(const StepResults& results, bool backward) {
  Hash hash;
  hash.add_bytes(results.output.bytes());
  if (!backward) return hash.value();
  hash.add_bytes(results.grad_hidden.bytes());
  hash.add_bytes(std::as_bytes(std::span(results.grad_router_weights)));
  const ExpertModel& of = results.grad_experts;
  for (const Tensor* tensor : {&of.gate_up, &of.down, &of.gate_up_bias, &of.down_bias})
    hash.add_bytes(tensor->bytes());
  return hash.value();
}

DenseResult evaluate(const ExperimentSetup& setup, const Batch& batch) {
  const ExpertShape& shape = setup.shape.expert;
  const auto rows = [&](const Tensor& all) {
    return ConstRows{all.at(0), batch.num_tokens(), shape.hidden, shape.type};
  };
  return evaluate_dense(shape, setup.inputs->experts.all(), rows(setup.inputs->hidden), batch.all(),
                        setup.backward ? rows(setup.inputs->grad_output) : ConstRows{});
}

// The output of the same layer on one rank, under planner ep.
std::vector<std::byte> one_rank_output(const ExperimentSetup& setup, const Batch& batch) {
  ExperimentSetup alone = setup;
  alone.placement = LayerPlacement::contiguous(setup.shape.num_experts, 1);
  alone.backward = false;
  alone.rounds = 0;
  alone.where = {};
  alone.timelines = false;
  alone.reference = plain_ep();
  alone.candidates = {alone.reference};
  std::vector<std::byte> output;
  measure(alone, std::vector{batch.on_one_rank()}, [&](std::size_t, const StepResults& results, bool) {
    output.assign(results.output.bytes().begin(), results.output.bytes().end());
  });
  return output;
}

// A limit far above rounding errors, even in bf16 where positive and negative results nearly cancel.
double most_error(DataType type) {
  return type == DataType::f32 ? 1e-2 : 1.0;
}

void require_right(const ExperimentSetup& setup, const std::vector<Accuracy>& accuracy) {
  for (std::size_t candidate = 0; candidate < accuracy.size(); ++candidate) {
    const std::string_view planner = name_of(setup.candidates[candidate].planner.kind);
    const double error = accuracy[candidate].max_rel_error;
    const bool vanishes = accuracy[candidate].max_abs_error < 1e-30;  // near the smallest f32
    if (!vanishes && !(error <= most_error(setup.shape.expert.type)))
      throw Unsupported(
          fmt::format("the step under {} is wrong on this machine: its largest error is {:.3g} of the "
                      "largest value of the dense evaluation; please report it",
                      planner, error));
    if (accuracy[candidate].bitwise_equal == false)
      throw Unsupported(fmt::format(
          "the step under {} is wrong on this machine: its output differs in bits from that of one rank "
          "under ep, though this CPU passed the test for equal bits; please report it",
          planner));
  }
}

}  // namespace

CheckedFigures measure_and_check(const ExperimentSetup& setup, const Batch& batch,
                                 const RoundProgress& progress) {
  const bool is_first = setup.where.is_first();
  const DenseResult reference = is_first ? evaluate(setup, batch) : DenseResult{};
  const std::vector<std::byte> expected = is_first ? one_rank_output(setup, batch) : std::vector<std::byte>{};
  CheckedFigures checked;
  if (is_first) checked.accuracy.resize(setup.candidates.size());
  const auto inspect = [&](std::size_t candidate, const StepResults& results, bool bitwise) {
    Accuracy& accuracy = checked.accuracy[candidate];
    accuracy = compare(reference, results, setup.backward);
    accuracy.checksum = checksum_of(results, setup.backward);
    if (bitwise) accuracy.bitwise_equal = std::ranges::equal(results.output.bytes(), expected);
  };
  checked.figures = std::move(measure(setup, std::vector{batch}, inspect, progress).front());
  require_right(setup, checked.accuracy);
  return checked;
}

}  // namespace evenkeel
