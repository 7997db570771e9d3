// Load traces of UltraEP.
#include <functional>
#include <nlohmann/json.hpp>

#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/zip_archive.h"
#include "evenkeel/io/read_recording.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using Metadata = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const ReadOptions by_step{.steps = ReadOptions::Steps::kept};

// The loads of three experts in one layer and micro-batch.
struct Record {
  int layer = 0;
  int microbatch = 0;
  std::vector<std::int64_t> loads = {};
};

std::string npy(const std::string& descr, const std::string& shape, const std::string& bytes) {
  return npy_text("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }", bytes);
}

std::string integers(const std::vector<std::int64_t>& values, const std::string& shape) {
  return npy("<i8", shape,
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int64_t)});
}

struct UltraEpTrace : InFolder {
  std::string chunk_name(int trace, int chunk) {
    return folder / ("epg" + std::to_string(trace) + ".chunk00000" + std::to_string(chunk) + ".npz");
  }

  // Writes one chunk of a trace of a model with four layers. `change` edits the chunk's metadata.
  std::string write(
      int trace, int chunk, const std::vector<Record>& records,
      const std::function<void(Metadata&)>& change = [](Metadata&) {}) {
    Metadata metadata = {{"schema", "ultra_ep_trace_v1"},
                         {"trace_id", trace},
                         {"chunk_id", chunk},
                         {"num_global_logical_experts", 3},
                         {"num_layers", 4}};
    change(metadata);
    std::string text;
    for (const char c : metadata.dump()) text += {c, '\0', '\0', '\0'};
    std::vector<std::int64_t> layers, microbatches, loads;
    for (const Record& each : records) {
      layers.push_back(each.layer);
      microbatches.push_back(each.microbatch);
      loads.insert(loads.end(), each.loads.begin(), each.loads.end());
    }
    const std::string count = std::to_string(records.size());
    const std::map<std::string, std::string> members = {
        {"metadata.npy", npy("<U" + std::to_string(text.size() / 4), "", text)},
        {"layers.npy", integers(layers, count + ",")},
        {"microbatches.npy", integers(microbatches, count + ",")},
        {"pre_logical_loads.npy",
         integers(loads, count + ", " + std::to_string(records.empty() ? 3 : loads.size() / records.size()))},
    };
    std::vector<internal::MemberToWrite> to_write;
    for (const auto& [name, bytes] : members)
      to_write.push_back({name, std::ssize(bytes), false, [&bytes = bytes] {
                            return [&bytes, done = false]() mutable {
                              return std::as_bytes(
                                  std::span(bytes).first(std::exchange(done, true) ? 0 : bytes.size()));
                            };
                          }});
    internal::write_zip(to_write, chunk_name(trace, chunk));
    return chunk_name(trace, chunk);
  }

  void write_manifest(int trace, int chunks) {
    write_text(folder / ("epg" + std::to_string(trace) + ".manifest.json"),
               Metadata{{"schema", "ultra_ep_trace_v1"}, {"trace_id", trace}, {"chunks", chunks}}.dump());
  }
};

std::vector<std::vector<std::int64_t>> steps_of(const Recording& recording) {
  std::vector<std::vector<std::int64_t>> steps;
  for (const RoutingProfile& step : recording.steps)
    steps.emplace_back(step.loads().begin(), step.loads().end());
  return steps;
}

// A file made by numpy (tests/fuzz/make_corpus.py): two layers, numbered from 1, in two micro-batches.
TEST_F(UltraEpTrace, IsReadAsNumpyWritesIt) {
  const std::string chunk = repository_file("tests/fuzz/corpus/recording/ultraep");
  const Recording added = read_recording(chunk);
  EXPECT_EQ(added.kind, "statistics");
  EXPECT_EQ(added.format, "ultraep");
  EXPECT_EQ(added.layers(), LayerNumbers({0, 1}));
  EXPECT_THAT(added.profile.loads(), ElementsAre(0 + 6, 1 + 7, 2 + 8, 3 + 9, 4 + 10, 5 + 11));
  EXPECT_THAT(added.notes, IsEmpty());
  EXPECT_THAT(steps_of(read_recording(chunk, by_step)),
              ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5), ElementsAre(6, 7, 8, 9, 10, 11)));
}

// Expert-parallel groups do not wait for each other, so each micro-batch of each group is a step.
TEST_F(UltraEpTrace, OfAFolderHasTheChunksOfAllGroups) {
  write(1, 0, {{3, 0, {1, 2, 3}}, {4, 0, {4, 5, 6}}, {3, 1, {1, 0, 0}}});
  write(1, 1, {{4, 1, {0, 1, 0}}});
  write(2, 0, {{4, 0, {10, 0, 0}}, {3, 0, {0, 10, 0}}});
  write_manifest(1, 2);
  write_manifest(2, 1);
  const Recording all = read_recording(folder / ".", by_step);
  EXPECT_EQ(all.layers(), LayerNumbers({2, 3}));
  EXPECT_THAT(steps_of(all), ElementsAre(ElementsAre(1, 2, 3, 4, 5, 6), ElementsAre(1, 0, 0, 0, 1, 0),
                                         ElementsAre(0, 10, 0, 10, 0, 0)));
  EXPECT_EQ(all.profile, profile_in(folder / "."));
  EXPECT_THAT(all.notes, IsEmpty());
}

TEST_F(UltraEpTrace, HasTheLayerNumbersThatTheFirstOrTheLastLayerTells) {
  const auto layers_of = [&](int layer) { return read_recording(write(1, 0, {{layer, 0, {1, 2, 3}}})); };
  EXPECT_EQ(layers_of(0).layers(), LayerNumbers({0}));
  EXPECT_EQ(layers_of(4).layers(), LayerNumbers({3}));
  EXPECT_EQ(layers_of(5).layers(), LayerNumbers({4}));  // the multi-token prediction layer
  const Recording middle = layers_of(3);
  EXPECT_FALSE(middle.layers().known());
  EXPECT_THAT(
      middle.notes,
      ElementsAre("the trace's layers 3 of 4 may be counted from 0 or from 1; the trace does not say which"));
  EXPECT_EQ(read_recording(chunk_name(1, 0), {.layers = {{2}}}).layers(), LayerNumbers({2}));
}

TEST_F(UltraEpTrace, LeavesStepsThatLackLayersOut) {
  const std::string chunk = write(
      1, 0, {{0, 0, {1, 2, 3}}, {1, 0, {4, 5, 6}}, {0, 7, {9, 9, 9}}, {1, 8, {1, 1, 1}}, {0, 8, {2, 2, 2}}});
  const Recording steps = read_recording(chunk, by_step);
  EXPECT_THAT(steps_of(steps), ElementsAre(ElementsAre(1, 2, 3, 4, 5, 6), ElementsAre(2, 2, 2, 1, 1, 1)));
  EXPECT_THAT(steps.notes,
              ElementsAre("1 of 3 micro-batches lack layers and are left out: micro-batch 7 of 1 "
                          "has 1 of 2 layers"));
  const Recording added = read_recording(chunk);
  EXPECT_THAT(added.profile.loads(), ElementsAre(12, 13, 14, 5, 6, 7));
  EXPECT_THAT(
      added.notes,
      ElementsAre("UltraEP's layers have unequal numbers of records: its layer 1 has 2, its layer 0 has 3"));

  write(1, 0, {{0, 0, {1, 2, 3}}, {1, 1, {4, 5, 6}}});
  EXPECT_EQ(recording_refusal(chunk, by_step),
            chunk +
                ": has no micro-batch with all layers: micro-batch 0 of 1 has 1 of 2 layers; right would be "
                "a whole trace, with pipeline stages read separately");
}

TEST_F(UltraEpTrace, MustHaveAllItsChunks) {
  const std::vector<Record> one = {{0, 0, {1, 2, 3}}}, other = {{0, 1, {1, 2, 3}}};
  write_manifest(1, 0);
  EXPECT_EQ(recording_refusal(folder / "."), (folder / ".") + ": has no UltraEP record");
  // The folder's files while the run still goes on.
  write(1, 0, one);
  EXPECT_THAT(read_recording(folder / ".").notes, ElementsAre("trace 1 has not ended; read so far: 1 chunk"));
  write_manifest(1, 2);
  const std::string manifest = folder / "./epg1.manifest.json: ";
  EXPECT_EQ(recording_refusal(folder / "."), manifest + "chunks: is 2, but the folder has 1 chunk file of 1");
  write(1, 2, other);
  EXPECT_EQ(recording_refusal(folder / "."),
            (folder / ".") + ": has 2 chunks of trace 1, numbered 0..2; all chunks from 0 on are needed");
  write_text(folder / "epg1.manifest.json", R"({"schema": "ultra_ep_trace_v1"})");
  write(1, 1, {{0, 2, {1, 2, 3}}});
  EXPECT_EQ(recording_refusal(folder / "."), manifest + "trace_id: is missing");
}

TEST_F(UltraEpTrace, IsRefusedByTheFileAndThePlace) {
  const auto refusal = [&](const std::vector<Record>& records, const std::function<void(Metadata&)>& change) {
    const std::string chunk = write(1, 0, records, change);
    const std::string message = recording_refusal(chunk);
    EXPECT_THAT(message, testing::StartsWith(chunk + ": "));
    return message.substr(chunk.size() + 2);
  };
  const std::vector<Record> one = {{0, 0, {1, 2, 3}}};
  const auto as_it_is = [](Metadata&) {};
  EXPECT_EQ(refusal(one, [](Metadata& metadata) { metadata["schema"] = "ultra_ep_trace_v2"; }),
            R"(metadata: schema: is "ultra_ep_trace_v2"; only "ultra_ep_trace_v1" is read)");
  EXPECT_EQ(refusal(one, [](Metadata& metadata) { metadata.erase("num_layers"); }),
            "metadata: num_layers: is missing");
  EXPECT_EQ(refusal(one, [](Metadata& metadata) { metadata["num_global_logical_experts"] = 4; }),
            "pre_logical_loads: shape [1, 3] is not [records, 4 experts]");
  EXPECT_EQ(refusal(one, [](Metadata& metadata) { metadata = 3; }), "metadata: is not a JSON object");
  EXPECT_EQ(refusal({}, as_it_is), "has no UltraEP record");
  EXPECT_EQ(refusal({{0, 0, {1, -2, 3}}}, as_it_is),
            "pre_logical_loads: element 1 is -2; counts are 0 or more, with a sum below 2^63");
  EXPECT_EQ(refusal({{7, 0, {1, 2, 3}}}, as_it_is), "layers: element 0 is 7, outside 0..6");
  EXPECT_EQ(refusal({one[0], one[0]}, as_it_is),
            "microbatches: element 1: layer 0 of micro-batch 0 of 1 appears twice");

  write(1, 0, one);
  write(2, 0, one, [](Metadata& metadata) { metadata["num_layers"] = 8; });
  EXPECT_THAT(recording_refusal(folder / "."), HasSubstr("has 8 layers of 3 experts, but "));
  array_file(folder, "alone.npz", "pre_logical_loads", {1, 3}, {1, 2, 3});
  EXPECT_EQ(recording_refusal(folder / "alone.npz"),
            (folder / "alone.npz") + ": metadata: is missing, or not a text");
}

}  // namespace
}  // namespace evenkeel
