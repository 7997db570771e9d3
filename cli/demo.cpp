// evenkeel demo: what balancing buys on the shipped trace and trained layer, for mixed text and for one
// domain.
#include <fmt/format.h>

#include <memory>

#include "cli/batch.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/run_report.h"
#include "cli/subcommand.h"
#include "evenkeel/io/trace_file.h"

namespace evenkeel::cli {

namespace {

constexpr int kLayer = 4;  // the one whose weights are shipped
// The batches are small, and so are the pieces worth moving.
constexpr std::int64_t kMinSegment = 64;

struct Options {
  std::string data = "data/tiny-moe";
  std::int64_t ranks = 8;
  std::int64_t repeat = 21;
};

// 16 sequences of 256 tokens each. The trace has 32 of python, cpp, prose, data and asm, in this order.
struct Selection {
  const char* name;
  TraceWindow::Sequences sequences;
};
constexpr Selection kSelections[] = {{"mixed text", {0, 160, 10}}, {"asm alone", {128, 160, 2}}};

ExperimentSetup setup_of(const Options& options, const MoeShape& shape) {
  ExperimentSetup setup{shape,
                        LayerPlacement::contiguous(shape.num_experts, static_cast<int>(options.ranks)),
                        nullptr,
                        nullptr,
                        nullptr,
                        true,
                        static_cast<int>(options.repeat),
                        {}};
  for (PlannerOptions::Kind kind :
       {PlannerOptions::Kind::ep, PlannerOptions::Kind::least_loaded, PlannerOptions::Kind::level}) {
    setup.planners.emplace_back();
    setup.planners.back().kind = kind;
    setup.planners.back().min_segment = kMinSegment;
    // Small as the imbalance of mixed text is, it is to be levelled too.
    setup.planners.back().imbalance_threshold_thousandths = 0;
  }
  return setup;
}

void run(const Options& options) {
  const auto trace = open_trace(options.data + "/routing_step1563.npz");
  const TrainedLayer trained = read_trained_layer(options.data + "/layer.safetensors");
  const ExpertModel experts = trained_experts(trained, DataType::f32);
  const MoeShape shape = {experts.num_experts, trace->info().top_k, experts.shape};
  ExperimentSetup setup = setup_of(options, shape);
  setup.experts = &experts;

  std::vector<Comparison> comparisons;
  for (const Selection& selection : kSelections) {
    const TraceWindow window = {LayerId(kLayer), selection.sequences, {}};
    const Batch batch = batch_of_trace(*trace, window, static_cast<int>(options.ranks));
    const std::int64_t elements = batch.num_tokens() * experts.shape.hidden;
    const Tensor hidden = repeated(DataType::f32, elements, trained.input);
    const Tensor grad_output = seeded(DataType::f32, elements, 1, 1.0);
    setup.hidden = &hidden;
    setup.grad_output = &grad_output;
    comparisons.push_back({selection.name, measure_and_check(setup, batch, progress_line(selection.name))});
  }
  fmt::print("layer {} of {}: {}\nmin-segment {}, imbalance-threshold 0; medians of {} steps\n\n", kLayer,
             trace->info().name, describe(setup), kMinSegment, options.repeat);
  print_comparisons(comparisons);
  for (const Comparison& each : comparisons) print_picture(each);
}

}  // namespace

Subcommand add_demo(CLI::App& command) {
  auto options = std::make_shared<Options>();
  CLI::App* app =
      command.add_subcommand("demo", "What balancing buys on the shipped trace and trained layer");
  app->add_option("--data", options->data, "The folder of tiny-moe")
      ->type_name("DIR")
      ->default_str(options->data);
  add_whole(*app, "--ranks", options->ranks, 1, 1024, "Threads, each with its share of experts and tokens");
  add_whole(*app, "--repeat", options->repeat, 1, 1000000, "Steps of each planner that are measured");
  app->footer("Example:\n  evenkeel demo --data data/tiny-moe");
  return {app, [options] { run(*options); }};
}

}  // namespace evenkeel::cli
