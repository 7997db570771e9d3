#include "evenkeel/io/placement_file.h"

#include <nlohmann/json.hpp>
#include <random>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

using PlacementFiles = InFolder;
using Json = nlohmann::json;

void expect_round_trip(const Placement& placement) {
  TempFolder folder;
  write_placement(
      {.placement = placement, .objective = 3.5, .bound = 3.0, .provenance = {{"solver", "fast"}}},
      folder / "p.json");
  const PlacementFile read = read_placement(folder / "p.json");
  ASSERT_EQ(read.placement.num_layers(), placement.num_layers());
  for (int l = 0; l < placement.num_layers(); ++l) EXPECT_EQ(read.placement.layer(l), placement.layer(l));
  EXPECT_EQ(read.objective, 3.5);
  EXPECT_EQ(read.bound, 3.0);
  EXPECT_EQ(read.provenance, (std::map<std::string, std::string>{{"solver", "fast"}}));
}

TEST_F(PlacementFiles, OfContiguousAndRandomHomesWithCopiesReadsBackOwnersIncluded) {
  expect_round_trip(Placement::contiguous(3, 16, 4));
  expect_round_trip(Placement::contiguous(1, 7, 3));
  expect_round_trip(Placement::contiguous(2, 3, 5));
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 6);
    const std::size_t experts = 1 + random() % 10;
    std::vector<LayerPlacement> layers;
    for (int l = 0; l < 2; ++l) {
      std::vector<std::vector<int>> homes(experts);
      for (auto& of_expert : homes) {
        const int owner = static_cast<int>(random() % static_cast<unsigned>(ranks));
        of_expert = {owner};
        for (int rank = 0; rank < ranks; ++rank)
          if (rank != owner && random() % 3 == 0) of_expert.push_back(rank);
      }
      layers.emplace_back(homes, ranks);
    }
    SCOPED_TRACE(seed);
    expect_round_trip(Placement(layers));
  }
}

TEST_F(PlacementFiles, IsRankMajorWithTheFieldsOfItsFormat) {
  write_placement({.placement = Placement::contiguous(2, 4, 2)}, folder / "p.json");
  EXPECT_EQ(Json::parse(read_text(folder / "p.json")),
            Json::parse(
                R"({"format": "evenkeel.placement.v1", "num_layers": 2, "num_experts": 4, "num_ranks": 2,
                            "physical_to_logical": [[0, 1, 2, 3], [0, 1, 2, 3]], "provenance": {}})"));
  write_placement({.placement = Placement::contiguous(1, 5, 2)}, folder / "p.json");
  EXPECT_EQ(Json::parse(read_text(folder / "p.json"))["rank_offsets"], Json::parse("[[0, 2, 5]]"));
}

const Json whole_placement = Json::parse(
    R"({"format": "evenkeel.placement.v1", "num_layers": 2, "num_experts": 4, "num_ranks": 2,
                                   "physical_to_logical": [[0, 1, 2, 3], [3, 1, 0, 2]]})");

TEST_F(PlacementFiles, KeepsTheModelsLayerNumbersAndTheUpdatesThatOthersSay) {
  write_placement({.placement = Placement::contiguous(2, 4, 2).numbered(LayerNumbers({3, 5})),
                   .layer_updates_per_iter = 0},
                  folder / "p.json");
  const PlacementFile file = read_placement(folder / "p.json");
  EXPECT_EQ(file.placement.layers(), LayerNumbers({3, 5}));
  EXPECT_EQ(file.layer_updates_per_iter, 0);
  write_placement({.placement = Placement::contiguous(2, 4, 2)}, folder / "p.json");
  EXPECT_FALSE(read_placement(folder / "p.json").placement.layers().known());
  EXPECT_EQ(read_placement(folder / "p.json").layer_updates_per_iter, std::nullopt);
}

TEST_F(PlacementFiles, ThatCannotBeAPlacementSaysWhy) {
  const struct {
    const char* key;
    const char* value;
    const char* message;
  } refused[] = {
      {"format", "\"sglang\"", "format: is \"sglang\", not \"evenkeel.placement.v1\""},
      {"num_ranks", "0", "num_ranks: is 0; allowed: 1..65536"},
      {"num_experts", "\"4\"", "num_experts: is a JSON string, not a whole number"},
      {"num_layers", "3", "physical_to_logical: is not a list of num_layers = 3 layers"},
      {"num_experts", "60000",
       "physical_to_logical[0]: has 4 physical experts, fewer than the 60000 experts"},
      {"num_ranks", "3",
       "physical_to_logical[0]: 4 physical experts cannot be divided evenly over 3 ranks, and there are no "
       "rank_offsets"},
      {"physical_to_logical", "[[0, 1, 2, 4], [3, 1, 0, 2]]",
       "physical_to_logical[0][3]: expert 4 is outside 0..3"},
      {"physical_to_logical", "[[0, 1, 2, 3], [3, 1, 0, 1]]",
       "physical_to_logical[1]: expert 2 of 4 is on no rank"},
      {"physical_to_logical", "[[0, 0, 2, 3], [3, 1, 0, 2]]",
       "physical_to_logical[0][1]: rank 0 holds expert 0 twice; a rank may hold an expert only once"},
      {"rank_offsets", "[[0, 2, 4]]", "rank_offsets: is not a list of num_layers = 2 layers"},
      {"rank_offsets", "[[0, 2, 4], [0, 5, 4]]", "rank_offsets[1]: is not 3 ascending offsets from 0 to 4"},
      {"owners", "[[0, 0, 1, 1], [0, 0, 0, 1]]", "owners[1]: rank 0 owns expert 0 but has no copy of it"},
      {"owners", "[[0], [0]]", "owners[0]: has 1 ranks for 4 experts"},
      {"objective", "\"low\"", "objective: is a JSON string, not a number"},
      {"layers", "[3]", "layers: has 1 numbers for 2 layers"},
      {"layers", "[3, 3]",
       "layers: layer 3 is out of order or too large; allowed: ascending numbers in 0..65535"},
      {"layers", "[3, 65536]",
       "layers: layer 65536 is out of order or too large; allowed: ascending numbers in 0..65535"},
      {"layer_updates_per_iter", "-1", "layer_updates_per_iter: is -1; allowed: 0..65536"},
      {"provenance", "1", "provenance: is not a JSON object"},
  };
  for (const auto& [key, value, message] : refused) {
    Json changed = whole_placement;
    changed[key] = Json::parse(value);
    EXPECT_EQ(message_of<ParseError>([&] { read_placement(source_of(changed.dump())); }),
              std::string("f: ") + message);
  }
  EXPECT_EQ(message_of<ParseError>([] { read_placement(test_data("ids_int8.npy")); }),
            test_data("ids_int8.npy") +
                ": is a npy file, from which no placement is read; write a map of slots to experts as "
                "{\"physical_to_logical_map\": ...} in JSON or a torch file");
}

}  // namespace
}  // namespace evenkeel
