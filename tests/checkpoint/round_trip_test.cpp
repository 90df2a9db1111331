// A folder written from any layout gives equal values in any other layout, in every format, in one file and in several.
#include "checkpoint/hf/inspect.h"
#include "checkpoint/hf/model_writer.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/safetensors/convert_values.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace echelon {
namespace {

std::vector<std::byte> in_format(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  convert_values(DType::float64, values.data(), dtype, bytes.data(), static_cast<std::int64_t>(values.size()));
  return bytes;
}

// The parameters' dims are split alternately, so that rows and columns of every kind of tensor are split.
int cut_dim(std::size_t index, int tp) { return static_cast<int>((index + static_cast<std::size_t>(tp)) % 2); }

void write_all(const ModelWriter::Options& options, int tp, DType host_dtype) {
  std::vector<std::unique_ptr<ModelWriter>> ranks;
  for (int rank = 0; rank < tp; ++rank) ranks.push_back(std::make_unique<ModelWriter>(options));
  ranks[0]->begin();
  const auto parameters = global_parameters(options.model);
  std::int64_t num_written = 0;
  for (int rank = 0; rank < tp; ++rank) {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const Param param = sliced(parameters[p], cut_dim(p, tp), rank, tp);
      if (param.slice.dim() < 0 && rank > 0) continue;
      ranks[static_cast<std::size_t>(rank)]->write(
          param.name, param.slice, host_dtype, in_format(host_dtype, slice_values(param, whole(parameters[p]))).data());
    }
    num_written += ranks[static_cast<std::size_t>(rank)]->num_written();
  }
  EXPECT_EQ(num_written, options.model.num_parameters());
  ranks[0]->write_router_bias(some_router_bias(options.model));
  ranks[0]->finish();
}

void expect_read(const std::filesystem::path& folder, const ModelSpec& model, int tp, DType dtype) {
  const ModelReader reader(folder);
  EXPECT_EQ(reader.spec(), model);
  EXPECT_EQ(reader.router_bias(), some_router_bias(model));
  const auto parameters = global_parameters(model);
  for (std::size_t p = 0; p < parameters.size(); ++p)
    for (int rank = 0; rank < tp; ++rank) {
      const Param param = sliced(parameters[p], cut_dim(p + 1, tp), rank, tp);
      const auto expected = in_format(dtype, slice_values(param, whole(parameters[p])));
      std::vector<std::byte> got(expected.size(), std::byte{0xee});
      reader.read(param.name, param.slice, dtype, got.data());
      EXPECT_EQ(got, expected) << param.name << " rank " << rank << " of " << tp;
    }
}

struct Case {
  Family family;
  bool tied;
};

class RoundTrip : public ::testing::TestWithParam<Case> {};

TEST_P(RoundTrip, AnyLayoutToAnyOther) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(GetParam().family, GetParam().tied);
  for (int from = 1; from <= 4; ++from) {
    write_all({.folder = scratch / "model", .model = model}, from, DType::float32);
    for (int to = 1; to <= 4; ++to) expect_read(scratch / "model", model, to, DType::float32);
  }
}

TEST_P(RoundTrip, AnyFormatToAnyOther) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(GetParam().family, GetParam().tied);
  constexpr DType formats[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};
  for (const DType file : formats)
    for (const DType memory : formats) {
      write_all({.folder = scratch / "model", .model = model, .dtype = file}, 2, memory);
      for (const ListedTensor& tensor : list_tensors(scratch / "model"))
        EXPECT_EQ(tensor.format, safetensors_format(is_router_bias(tensor.name) ? DType::float32 : file));
      expect_read(scratch / "model", model, 3, memory);
    }
}

TEST_P(RoundTrip, SeveralFiles) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(GetParam().family, GetParam().tied);
  write_all({.folder = scratch / "model", .model = model, .max_file_bytes = 2000}, 2, DType::float32);
  EXPECT_FALSE(std::filesystem::exists(scratch / "model/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(scratch / "model/model.safetensors.index.json"));
  EXPECT_EQ(list_tensors(scratch / "model").size(), file_tensors(model).size());
  expect_read(scratch / "model", model, 2, DType::float32);
}

// As for sharded state: ranges of a slice's elements with any start and end, over rows, columns and padding.
TEST_P(RoundTrip, FlatRangesOfSlices) {
  const ScratchFolder scratch;
  const ModelSpec model = tiny_model(GetParam().family, GetParam().tied);
  const auto for_each_range = [](const Param& param, std::int64_t size, const auto& visit) {
    const std::int64_t count = param.slice.num_elements();
    for (std::int64_t first = 0; first < count; first += size)
      visit(param.slice.elements({first, std::min(size, count - first)}), static_cast<std::size_t>(first));
  };
  const auto parameters = global_parameters(model);
  ModelWriter writer({.folder = scratch / "model", .model = model});
  writer.begin();
  for (std::size_t p = 0; p < parameters.size(); ++p)
    for (int rank = 0; rank < 3; ++rank) {
      const Param param = sliced(parameters[p], cut_dim(p, 0), rank, 3);
      if (param.slice.dim() < 0 && rank > 0) continue;
      const std::vector<double> values = slice_values(param, whole(parameters[p]));
      for_each_range(param, 17, [&](const TensorSlice& range, std::size_t first) {
        writer.write(param.name, range, DType::float64, values.data() + first);
      });
    }
  EXPECT_EQ(writer.num_written(), model.num_parameters());
  writer.write_router_bias(some_router_bias(model));
  writer.finish();
  expect_read(scratch / "model", model, 2, DType::float32);
  const ModelReader reader(scratch / "model");
  for (std::size_t p = 0; p < parameters.size(); ++p)
    for (int rank = 0; rank < 2; ++rank) {
      const Param param = sliced(parameters[p], cut_dim(p + 1, 0), rank, 2);
      const std::vector<double> expected = slice_values(param, whole(parameters[p]));
      std::vector<double> values(expected.size(), 9.0);
      for_each_range(param, 31, [&](const TensorSlice& range, std::size_t first) {
        reader.read(param.name, range, DType::float64, values.data() + first);
      });
      EXPECT_EQ(values, expected) << param.name << " rank " << rank;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Families, RoundTrip,
    ::testing::Values(Case{Family::gpt2, true}, Case{Family::gpt2, false}, Case{Family::mixtral, false},
                      Case{Family::qwen3_moe, true}, Case{Family::dots1, false}, Case{Family::deepseek_v3, true},
                      Case{Family::deepseek_v2, false}, Case{Family::olmoe, true}, Case{Family::qwen2_moe, false},
                      Case{Family::llama, true}, Case{Family::llama, false}, Case{Family::qwen2, false},
                      Case{Family::qwen3, true}),
    [](const auto& test) { return std::string(name_of(test.param.family)) + (test.param.tied ? "Tied" : "Untied"); });

TEST(GlobalParameters, AddUpToTheModelsCount) {
  for (const auto name : preset_names()) {
    std::int64_t sum = 0;
    for (const NamedShape& parameter : global_parameters(preset(name))) sum += parameter.sizes.num_elements();
    EXPECT_EQ(sum, preset(name).num_parameters()) << name;
  }
}

}  // namespace
}  // namespace echelon
