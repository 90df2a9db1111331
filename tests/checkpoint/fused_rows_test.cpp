// Linear layers that a file stores as one tensor, one after the other or head by head, are found in any slice.
#include "checkpoint/hf/slice_io.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <gtest/gtest.h>

#include <cstring>

namespace echelon {
namespace {

constexpr std::int64_t num_heads = 6, head_width = 4, num_inputs = 5;

struct Fused {
  const char* name;
  FusedRows rows;
  std::int64_t own, all;                  // outputs of the part and of the tensor
  std::int64_t (*in_file)(std::int64_t);  // of an output, on paper
};

// Phi-3's qkv_proj with 2 kv heads, its gate_up_proj with 7 columns each, GPT-NeoX's query_key_value.
const Fused fused[] = {
    {"query", {}, num_heads* head_width, num_heads* head_width + 4 * head_width, [](std::int64_t i) { return i; }},
    {"value",
     {.first = num_heads * head_width + 2 * head_width},
     2 * head_width,
     num_heads* head_width + 4 * head_width,
     [](std::int64_t i) { return 24 + 8 + i; }},
    {"up", {.first = 7}, 7, 14, [](std::int64_t i) { return 7 + i; }},
    {"query_of_heads",
     {.first = 0, .block = head_width, .stride = 3 * head_width},
     num_heads* head_width,
     3 * num_heads* head_width,
     [](std::int64_t i) { return i / 4 * 12 + i % 4; }},
    {"value_of_heads",
     {.first = 2 * head_width, .block = head_width, .stride = 3 * head_width},
     num_heads* head_width,
     3 * num_heads* head_width,
     [](std::int64_t i) { return i / 4 * 12 + 8 + i % 4; }},
};

FileTensor tensor_of(const Sizes& sizes) {
  FileTensor tensor = {.format = "F32", .dtype = DType::float32, .shape = {}, .num_bytes = sizes.num_elements() * 4};
  for (int dim = 0; dim < sizes.num_dims(); ++dim) tensor.shape.push_back(sizes[dim]);
  return tensor;
}

// The file's element with index i is i, so that a value says where it was read.
void expect_places(const Fused& part, const NamedShape& parameter, const FilePlace& place, int dim, int tp) {
  const ScratchFolder scratch;
  std::vector<float> stored(static_cast<std::size_t>(place.sizes.num_elements()));
  for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<float>(i);
  put(scratch / "file", {reinterpret_cast<const char*>(stored.data()), stored.size() * 4});
  put(scratch / "copy", std::string(stored.size() * 4, '\0'));
  const bool is_bias = parameter.sizes.num_dims() == 1;
  std::vector<double> expected;
  for (std::int64_t i = 0; i < parameter.sizes[0]; ++i)
    for (std::int64_t j = 0; j < (is_bias ? 1 : num_inputs); ++j)
      expected.push_back(static_cast<double>(place.transposed ? j * part.all + part.in_file(i)
                                             : is_bias        ? part.in_file(i)
                                                              : part.in_file(i) * num_inputs + j));
  for (int rank = 0; rank < tp; ++rank) {
    const Param param = sliced(parameter, dim, rank, tp);
    std::vector<double> values(static_cast<std::size_t>(param.slice.num_elements()));
    read_slice(File::open_to_read(scratch / "file"), tensor_of(place.sizes), place, param.slice, DType::float64,
               values.data());
    EXPECT_EQ(values, slice_values(param, expected)) << part.name << " " << rank << " of " << tp;
    File copy = File::open_to_write(scratch / "copy");
    write_slice(copy, tensor_of(place.sizes), place, param.slice, DType::float64, values.data());
    copy.close();
  }
  const std::string written = get(scratch / "copy");
  for (const double at : expected) {
    float value = 0;
    std::memcpy(&value, written.data() + static_cast<std::size_t>(at) * 4, 4);
    EXPECT_EQ(value, at) << part.name;
  }
}

TEST(FusedRows, AreReadAndWrittenWhereTheyBelong) {
  for (const Fused& part : fused)
    for (const int tp : {1, 2, 3, 4}) {
      expect_places(part, {"w", {part.own, num_inputs}}, {"t", {part.all, num_inputs}, part.rows}, 0, tp);
      expect_places(part, {"w", {part.own, num_inputs}}, {"t", {part.all, num_inputs}, part.rows}, 1, tp);
      expect_places(part, {"w", {part.own, num_inputs}}, {"t", {num_inputs, part.all}, part.rows, true}, 0, tp);
      expect_places(part, {"b", {part.own}}, {"t", {part.all}, part.rows}, 0, tp);
    }
}

}  // namespace
}  // namespace echelon
