// Chooses a home for every expert from recorded routing, writes the placement file that SGLang loads, and
// plans one step with it.
//
//   example_placement ROUTING OUTPUT.json       ROUTING: anything that `evenkeel profile` reads
#include <evenkeel/balance/planner.h>
#include <evenkeel/base/error.h>
#include <evenkeel/io/placement_format.h>
#include <evenkeel/io/read_recording.h>
#include <evenkeel/placement/place.h>
#include <evenkeel/routing/imbalance.h>

#include <cstdio>
#include <numeric>
#include <vector>

using namespace evenkeel;

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: example_placement ROUTING OUTPUT.json\n");
    return 2;
  }
  try {
    // 8 ranks in two nodes. 8 redundant experts are second copies of popular experts.
    const RoutingProfile profile = read_recording(argv[1]).profile;
    const Topology machine = Topology::uniform(/*num_nodes=*/2, /*ranks_per_node=*/4);
    const PlaceResult placed = place(profile, machine, {.redundant_experts = 8});
    std::printf("worst layer's max/mean load: %.3f -> %.3f\n", placed.before.max_over_mean_worst,
                placed.after.max_over_mean_worst);

    // SGLang counts all layers of a model. `model_layers` lists the MoE layers among them: here all are.
    std::vector<int> model_layers(static_cast<std::size_t>(profile.num_layers()));
    std::iota(model_layers.begin(), model_layers.end(), 0);
    write_placement_as(PlacementFormat::sglang, {.placement = placed.placement},
                       {.layers = model_layers, .num_hidden_layers = profile.num_layers()}, argv[2]);

    // Plans a step of the last layer: load beyond an even share goes to other ranks.
    const LayerId last(profile.num_layers() - 1);
    const auto planner = make_planner({.kind = PlannerOptions::Kind::level, .min_segment = 64});
    StepPlan plan;
    planner->plan(Counts::of_loads(profile.loads(last), machine.num_ranks()),
                  placed.placement.layer(last.value()), plan);
    std::printf("planned step: max/mean load %.3f with %zu weight transfers\n",
                imbalance(plan.rank_loads()).max_over_mean, plan.transfers().size());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
