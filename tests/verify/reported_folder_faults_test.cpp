// Faults that were reported of the folders of mixtures of experts. Each row plants its fault while a folder is loaded
// on a layout and written again: without the plant the second folder has the tensors of the first.
#include "base/error.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/raw_tensors.h"
#include "comm/thread/thread_world.h"
#include "engine/rank_run.h"
#include "ops/cpu/cpu_ops.h"
#include "scratch_folder.h"
#include "spec/groups.h"
#include "verify/mixture_layout.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace echelon::testing {
namespace {

using ::testing::HasSubstr;

/// What the fault does with each parameter of experts of a rank, after it was loaded and before it is written.
using FolderPlant = std::function<void(Param& param, int expert_rank)>;

/// Each expert-parallel rank writes its experts under their local indices.
void as_local_experts(Param& param, int /*expert_rank*/) {
  param.slice = TensorSlice(param.slice.global_sizes(), 0, {0, param.slice.entries(0).count});
}

/// Only the experts of the first expert-parallel rank are written.
void of_the_first_rank(Param& param, int expert_rank) { param.is_saved = expert_rank == 0; }

/// The experts of the folder are not loaded, and keep the values of before.
void not_loaded(Param& param, int /*expert_rank*/) {
  std::memset(param.value.data, 0, static_cast<std::size_t>(param.value.num_bytes()));
}

void plant(RankModel& model, int expert_rank, const FolderPlant& fault) {
  for (ShardedUnit* unit : model.part().units())
    for (const Bucket& bucket : unit->buckets())
      for (const Segment& segment : bucket.segments)
        if (segment.param->name.find(".experts.") != std::string::npos) fault(*segment.param, expert_rank);
}

void write_folder(const MixtureLayout& layout, const std::filesystem::path& from, const std::filesystem::path& to,
                  const FolderPlant& fault = {}) {
  RunConfig config = mixture_config(layout);
  config.model.intermediate_size = config.model.mixture.moe_intermediate_size;  // Mixtral's config.json has one of them
  const Blueprint blueprint(config);
  run_thread_ranks(blueprint.mesh(), {}, [&](Mesh& mesh) {
    const auto ops = make_cpu_ops({});
    RankRun rank(blueprint, mesh, *ops);
    if (from.empty())
      rank.model().initialize(config.training.seed, *ops);
    else
      rank.model().load(ModelReader(from), *ops);
    if (fault) plant(rank.model(), mesh.rank() % layout.ep, fault);
    ModelWriter writer({.folder = to, .model = config.model, .dtype = DType::float64});
    Comm& world = mesh.comm(world_group);
    if (mesh.rank() == 0) writer.begin();
    world.barrier().wait();
    rank.model().save(writer, *ops, mesh);
    world.barrier().wait();
    if (mesh.rank() == 0) writer.finish();
  });
}

/// The tensors that differ, or that are in one of the folders alone.
std::vector<std::string> different(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto tensors = tensors_in(a), others = tensors_in(b);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors)
    if (!others.contains(name) || others.at(name) != tensor) names.push_back(name);
  for (const auto& [name, tensor] : others)
    if (!tensors.contains(name)) names.push_back(name);
  return names;
}

struct ReportedFolderFault {
  const char* name;
  const char* report;
  MixtureLayout layout;
  FolderPlant fault;
};

std::vector<ReportedFolderFault> reported_folder_faults() {
  const MixtureLayout ep = {.shard = 4, .ep = 4}, tp_ep = {.shard = 2, .tp = 2, .ep = 2, .sequence_parallel = true};
  return {
      {"LocalIndices", "NVIDIA-NeMo/Megatron-Bridge#1716", ep, as_local_experts},
      {"LocalIndicesUnderTp", "NVIDIA-NeMo/Megatron-Bridge#1716", tp_ep, as_local_experts},
      {"ExpertsOfOneRank", "NVIDIA-NeMo/Megatron-Bridge#1716", ep, of_the_first_rank},
      {"ExpertsThatAreNotLoaded", "NVIDIA/Megatron-LM#5844", ep, not_loaded},
  };
}

void PrintTo(const ReportedFolderFault& fault, std::ostream* out) { *out << fault.report; }

class ReportedFolderFaults : public ::testing::TestWithParam<ReportedFolderFault> {};

TEST_P(ReportedFolderFaults, AreNotHereAndWouldBeFound) {
  const ReportedFolderFault& fault = GetParam();
  const std::filesystem::path original = scratch_folder() + "original", written = scratch_folder() + "written";
  write_folder({.family = fault.layout.family}, {}, original);
  write_folder(fault.layout, original, written);
  EXPECT_THAT(different(written, original), ::testing::IsEmpty());
  write_folder(fault.layout, original, written, fault.fault);
  EXPECT_THAT(different(written, original),
              ::testing::AllOf(::testing::Not(::testing::IsEmpty()), ::testing::Each(HasSubstr(".experts."))));
}

INSTANTIATE_TEST_SUITE_P(Elsewhere, ReportedFolderFaults, ::testing::ValuesIn(reported_folder_faults()),
                         [](const auto& fault) { return fault.param.name; });

/// Renames tensors of a file of safetensors, or repeats them under a further name.
struct ForeignExperts {
  const char* name;
  std::string from, to;  // parts of names
  bool keeps_known_ones;
  std::string refused;
};

void PrintTo(const ForeignExperts& experts, std::ostream* out) { *out << experts.name; }

void rename(const std::filesystem::path& folder, const ForeignExperts& experts) {
  const std::string file = read_text(folder / "model.safetensors");
  std::uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof(size));
  const nlohmann::json whole = nlohmann::json::parse(file.substr(sizeof(size), size));
  nlohmann::json header = nlohmann::json::object();
  std::string data = file.substr(sizeof(size) + size);
  for (const auto& [name, tensor] : whole.items()) {
    const std::size_t at = name.find(experts.from);
    if (at == std::string::npos || experts.keeps_known_ones) header[name] = tensor;
    if (at == std::string::npos) continue;
    nlohmann::json& foreign = header[std::string(name).replace(at, experts.from.size(), experts.to)] = tensor;
    if (!experts.keeps_known_ones) continue;
    const std::size_t first = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    foreign["data_offsets"] = {data.size(), data.size() + end - first};
    data += data.substr(first, end - first);
  }
  const std::string text = header.dump();
  size = text.size();
  std::string length(sizeof(size), '\0');
  std::memcpy(length.data(), &size, sizeof(size));
  std::ofstream(folder / "model.safetensors", std::ios::binary) << length << text << data;
}

class ReportedExpertNames : public ::testing::TestWithParam<ForeignExperts> {};

// NVIDIA/Megatron-LM#5844: experts whose names were not recognized stayed random, and success was reported.
TEST_P(ReportedExpertNames, AreRefused) {
  const std::filesystem::path folder = scratch_folder() + "named";
  write_folder({}, {}, folder);
  EXPECT_NO_THROW(ModelReader{folder});
  rename(folder, GetParam());
  EXPECT_THAT([&] { ModelReader{folder}; }, ::testing::ThrowsMessage<Error>(HasSubstr(GetParam().refused)));
}

INSTANTIATE_TEST_SUITE_P(
    Elsewhere, ReportedExpertNames,
    ::testing::Values(ForeignExperts{"AllInAnotherNaming", ".experts.", ".expert_", false,
                                     "has no tensor 'model.layers.0.block_sparse_moe.experts.0.w1.weight' [12, 16]"},
                      ForeignExperts{"OneMissing", "layers.1.block_sparse_moe.experts.3.w2.",
                                     "layers.1.block_sparse_moe.expert_3.w2.", false,
                                     "has no tensor 'model.layers.1.block_sparse_moe.experts.3.w2.weight' [16, 12]"},
                      ForeignExperts{"OneSurplus", "layers.1.block_sparse_moe.experts.3.w2.",
                                     "layers.1.block_sparse_moe.experts.4.w2.", true,
                                     "has tensor 'model.layers.1.block_sparse_moe.experts.4.w2.weight'"},
                      ForeignExperts{"AllInTwoNamings", ".experts.", ".expert_", true,
                                     "model.layers.0.block_sparse_moe.expert_0.w1.weight"}),
    [](const auto& experts) { return experts.param.name; });

}  // namespace
}  // namespace echelon::testing
