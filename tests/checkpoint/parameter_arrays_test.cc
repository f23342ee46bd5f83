// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/parameter_arrays.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/saved_step.h"
#include "device/device.h"
#include "fsdp/shard_kernels.h"
#include "tests/checkpoint/checkpoint_folder.h"
#include "tests/comm/run_thread_ranks.h"

namespace tandem::checkpoint {
namespace {

using testing::HasSubstr;

constexpr fsdp::ClassTypes kFp32{device::ElementKind::kFloat, device::ElementKind::kFloat,
                                 device::ElementKind::kFloat};

// Two units with gaps between their parameters; the second is smaller than a granule.
std::vector<std::pair<std::string, fsdp::Layout>> Units() {
  return {{"layers.0", fsdp::MakeLayout({{.name = "model.layers.0.norm.weight", .shape = {5}},
                                         {.name = "model.layers.0.q.weight", .shape = {40, 7}, .block = 0},
                                         {.name = "model.layers.0.k.weight", .shape = {3, 7}, .block = 0}},
                                        4)},
          {"head", fsdp::MakeLayout({{.name = "model.norm.weight", .shape = {9}}}, 4)}};
}

// One rank's units with weights and moments.
struct RankUnits {
  explicit RankUnits(const fsdp::UnitMesh& mesh) : device(device::MakeCpuDevice()) {
    for (const auto& [name, layout] : Units()) {
      units.emplace_back(name, std::vector<fsdp::UnitClass>{{layout, kFp32}}, mesh, *device,
                         fsdp::CpuShardKernels());
    }
    for (const fsdp::UnitShard& unit : units) {
      const auto memory = [&] {
        const int64_t held = unit.classes()[0].held().size();
        tensors.push_back(at::full({held}, -1, at::kFloat));
        return device::Memory{static_cast<char*>(tensors.back().mutable_data_ptr()), held * 4};
      };
      states.push_back({memory(), memory(), memory()});
    }
    arrays = std::make_unique<ParameterArrays>(*device, device::ElementKind::kFloat, units, states);
  }

  // Element i of a parameter's n-th kind: a number of its own.
  static float Value(size_t unit, int parameter, int64_t i, size_t kind) {
    return static_cast<float>(10'000 * (10 * unit + static_cast<size_t>(parameter)) + 1000 * kind) +
           static_cast<float>(i);
  }
  template <typename Function>
  void ForEach(const Function& function) {
    for (size_t u = 0; u < units.size(); ++u) {
      for (size_t kind = 0; kind < 3; ++kind) {
        float* const held = tensors[3 * u + kind].mutable_data_ptr<float>();
        for (const fsdp::Piece& piece : units[u].classes()[0].pieces()) {
          const int64_t start =
              units[u].classes()[0].layout().parameters[static_cast<size_t>(piece.parameter)].range.begin;
          for (int64_t i = piece.range.begin; i < piece.range.end; ++i) {
            function(held[i - units[u].classes()[0].held().begin],
                     Value(u, piece.parameter, i - start, kind));
          }
        }
      }
    }
  }
  void Set() {
    ForEach([](float& element, float value) { element = value; });
  }
  bool IsSet() {
    bool same = true;
    ForEach([&](float& element, float value) { same = same && element == value; });
    return same;
  }

  std::unique_ptr<device::Device> device;
  std::vector<fsdp::UnitShard> units;
  std::vector<at::Tensor> tensors;
  std::vector<fsdp::StateMemory> states;
  std::unique_ptr<ParameterArrays> arrays;
};

// Where `rank` is in the mesh that `mesh` is of some rank.
fsdp::UnitMesh At(fsdp::UnitMesh mesh, int rank) {
  mesh.inner_rank = rank % mesh.inner;
  mesh.outer_rank = rank / mesh.inner;
  return mesh;
}

std::string SaveUnits(platform::Files& files, const std::string& directory, const fsdp::UnitMesh& mesh) {
  std::string path;
  comm::RunThreadRanks(mesh.inner * mesh.outer, [&](comm::Communicator& comm) {
    RankUnits rank(At(mesh, comm.rank()));
    rank.Set();
    const Saved saved = SaveShards(files, comm, directory, 2, rank.arrays->owned_shards());
    if (comm.rank() == 0) {
      path = saved.path;
    }
  });
  return path;
}

void ExpectLoads(const std::string& path, const fsdp::UnitMesh& mesh) {
  for (int rank = 0; rank < mesh.inner * mesh.outer; ++rank) {
    RankUnits units(At(mesh, rank));
    EXPECT_FALSE(units.units[0].classes()[0].pieces().size() > 0 && units.IsSet()) << "before";
    LoadAlone(platform::SystemFiles(), path, units.arrays->shards());
    units.arrays->Loaded();
    EXPECT_TRUE(units.IsSet()) << "rank " << rank;
  }
}

class ParameterArraysTest : public CheckpointTest {};

// Any number of ranks, whether each holds a shard, all of it, or what a rank of another group holds as well.
TEST_F(ParameterArraysTest, AnyPlacementLoadsWhatAnyPlacementSaved) {
  const std::vector<fsdp::UnitMesh> meshes = {{},
                                              {.inner = 2},
                                              {.inner = 7},
                                              {.inner = 3, .inner_shards_optimizer = false},
                                              {.inner = 2, .outer = 2},
                                              {.inner = 2, .outer = 3, .outer_shards_optimizer = true}};
  for (size_t saving = 0; saving < meshes.size(); ++saving) {
    std::filesystem::remove_all(directory_);
    const std::string path = SaveUnits(files_, directory_, meshes[saving]);
    for (size_t loading = 0; loading < meshes.size(); ++loading) {
      SCOPED_TRACE(testing::Message() << "mesh " << saving << " saved, mesh " << loading << " loads");
      ExpectLoads(path, meshes[loading]);
    }
  }
}

TEST_F(ParameterArraysTest, ArraysHaveParameterNamesAndShapes) {
  const std::string path = SaveUnits(files_, directory_, {.inner = 3});
  const absl::StatusOr<Manifest> manifest = ReadFolderManifest(files_, path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::map<std::string, fsdp::Shape> shapes;
  for (const ManifestArray& array : manifest->arrays) {
    shapes[TensorName(array.name, array.kind)] = array.shape;
  }
  std::map<std::string, fsdp::Shape> expected;
  for (const auto& [name, layout] : Units()) {
    for (const fsdp::Parameter& parameter : layout.parameters) {
      for (const char* suffix : {"", "/exp_avg", "/exp_avg_sq"}) {
        expected[parameter.name + suffix] = parameter.shape;
      }
    }
  }
  EXPECT_EQ(shapes, expected) << "no padding, no units";
}

// The columns of a matrix, `count` slices of it, of which a rank has one and a shard of the rest.
struct Columns {
  Columns(int count, int rank) : device(device::MakeCpuDevice()) {
    const fsdp::Slice slice = {{0, 6}, {12 * rank / count, 12 * (rank + 1) / count}};
    units.emplace_back(
        "layers.0",
        std::vector<fsdp::UnitClass>{
            {fsdp::MakeLayout({{.name = "before", .shape = {3}, .slice = {{0, rank == 0 ? 3 : 0}}},
                               {.name = "matrix", .shape = {6, 12}, .slice = slice}},
                              4),
             kFp32}},
        fsdp::UnitMesh(), *device, fsdp::CpuShardKernels());
    const auto memory = [&] {
      const int64_t held = units[0].classes()[0].held().size();
      tensors.push_back(at::full({held}, -1, at::kFloat));
      return device::Memory{static_cast<char*>(tensors.back().mutable_data_ptr()), held * 4};
    };
    states.push_back({memory(), memory(), memory()});
    arrays = std::make_unique<ParameterArrays>(*device, device::ElementKind::kFloat, units, states);
  }

  // Element i of the whole parameter of a kind has the value that `visit` gets.
  template <typename Visit>
  void ForEach(const Visit& visit) {
    for (const fsdp::Parameter& parameter : units[0].classes()[0].layout().parameters) {
      for (const fsdp::CommonRun& run : fsdp::WholeRuns(parameter, parameter.range)) {
        for (int64_t i = 0; i < 3 * run.elements; ++i) {
          const int64_t kind = i / run.elements;
          const int64_t element = i % run.elements;
          visit(tensors[static_cast<size_t>(kind)]
                    .mutable_data_ptr<float>()[parameter.range.begin + run.b + element],
                static_cast<float>(1000 * kind + 100 * (parameter.name == "matrix") + run.a + element));
        }
      }
    }
  }

  std::unique_ptr<device::Device> device;
  std::vector<fsdp::UnitShard> units;
  std::vector<at::Tensor> tensors;
  std::vector<fsdp::StateMemory> states;
  std::unique_ptr<ParameterArrays> arrays;
};

TEST_F(ParameterArraysTest, ColumnsLoadInOtherSlices) {
  for (const int saving : {1, 2, 4}) {
    std::filesystem::remove_all(directory_);
    comm::RunThreadRanks(saving, [&](comm::Communicator& comm) {
      Columns rank(saving, comm.rank());
      rank.ForEach([](float& element, float value) { element = value; });
      SaveShards(files_, comm, directory_, 2, rank.arrays->owned_shards());
    });
    for (const int loading : {1, 2, 3, 4}) {
      for (int r = 0; r < loading; ++r) {
        Columns rank(loading, r);
        LoadAlone(files_, Path(2), rank.arrays->shards());
        rank.arrays->Loaded();
        rank.ForEach([&](const float& element, float value) {
          EXPECT_EQ(element, value) << saving << " saved, rank " << r << " of " << loading << " loads";
        });
      }
    }
    const absl::StatusOr<SavedStep> step = SavedStep::Open(files_, Path(2));
    ASSERT_TRUE(step.ok()) << step.status();
    const absl::StatusOr<std::string> read = step->Read(*step->Find("matrix/exp_avg"), 5, 60);
    ASSERT_TRUE(read.ok()) << read.status();
    for (int64_t i = 0; i < 60; ++i) {  // as an export reads it
      float value = 0;
      read->copy(reinterpret_cast<char*>(&value), 4, static_cast<size_t>(4 * i));
      EXPECT_EQ(value, static_cast<float>(1100 + 5 + i));
    }
  }
}

// What every rank holds alike and no unit has: the biases of a router.
TEST_F(ParameterArraysTest, FirstRankSavesWholeArrays) {
  constexpr char kName[] = "model.layers.0.mlp.gate.e_score_correction_bias";
  const auto arrays_of = [&](const RankUnits& rank, at::Tensor& held, bool is_first) {
    const device::Memory memory{static_cast<char*>(held.mutable_data_ptr()),
                                static_cast<int64_t>(held.nbytes())};
    return ParameterArrays(*rank.device, device::ElementKind::kFloat, rank.units, rank.states,
                           {{kName, memory}}, is_first);
  };
  std::string path;
  comm::RunThreadRanks(3, [&](comm::Communicator& comm) {
    RankUnits rank(At({.inner = 3}, comm.rank()));
    rank.Set();
    at::Tensor held = at::arange(6, at::kFloat) + 100 * comm.rank();
    ParameterArrays arrays = arrays_of(rank, held, comm.rank() == 0);
    const Saved saved = SaveShards(files_, comm, directory_, 1, arrays.owned_shards());
    if (comm.rank() == 0) {
      path = saved.path;
    }
  });
  EXPECT_THAT(Inspect(files_, path).states, testing::ElementsAre(kName));
  for (int r = 0; r < 2; ++r) {
    RankUnits rank(At({.inner = 2}, r));
    at::Tensor held = at::full({6}, -1, at::kFloat);
    ParameterArrays arrays = arrays_of(rank, held, r == 0);
    LoadAlone(files_, path, arrays.shards());
    arrays.Loaded();
    EXPECT_TRUE(held.equal(at::arange(6, at::kFloat)));
    EXPECT_TRUE(rank.IsSet());
  }
}

TEST_F(ParameterArraysTest, AnotherShapeIsRefusedByName) {
  const std::string path = SaveUnits(files_, directory_, {.inner = 2});
  RankUnits units({});
  std::vector<Shard> shards = units.arrays->shards();
  shards[1].shape[0] += 1;
  try {
    LoadAlone(files_, path, shards);
    FAIL() << "loaded";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("array model.layers.0.q.weight is [40, 7] there, [41, 7] here"));
  }
}

}  // namespace
}  // namespace tandem::checkpoint
