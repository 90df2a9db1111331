// Handmade headers: valid ones are read, and errors are named.
#include "checkpoint/safetensors/safetensors.h"

#include "base/error.h"
#include "checkpoint/hf/weight_folder.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace echelon {
namespace {

using ::testing::HasSubstr;

std::string with_length(const std::string& header, const std::string& data) {
  std::string file;
  for (unsigned shift = 0; shift < 64; shift += 8)
    file += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> shift & 0xffU);
  return file + header + data;
}

const std::string good_header =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BOOL","shape":[4],"data_offsets":[24,28]}})";
const std::string good_data(28, 'x');

TEST(SafetensorsHeader, ReadsAHandmadeFile) {
  const ScratchFolder scratch;
  put(scratch / "f", with_length(good_header, good_data));
  const auto tensors = read_safetensors_header(scratch / "f");
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors.at("a").dtype, DType::float32);
  EXPECT_EQ(tensors.at("a").shape, (FileShape{2, 3}));
  EXPECT_EQ(tensors.at("a").first_byte, static_cast<std::int64_t>(8 + good_header.size()));
  EXPECT_EQ(tensors.at("b").dtype, std::nullopt);
  EXPECT_EQ(tensors.at("b").first_byte, static_cast<std::int64_t>(8 + good_header.size() + 24));
}

struct Wrong {
  std::string header;
  std::string data;
  std::string said;
};

std::string one(const std::string& fields) { return R"({"t":{)" + fields + "}}"; }

TEST(SafetensorsHeader, NamesWhatIsWrong) {
  const std::string four(4, 'x');
  const Wrong cases[] = {
      {"{", "", "is corrupt: its header: not valid JSON at column 2, after '{': unexpected end of input"},
      {std::string(1'000'000, '['), "", "nested more than 32 levels deep"},
      {"[]", "", "not a JSON object"},
      {"{\"t\":\xff\xfe}", "", "not valid JSON at column 6, after '{\"t\":': invalid literal"},
      {R"({"t":7})", "", "lacks a valid dtype"},
      {one(R"("dtype":"F32","shape":[1])"), four, "lacks a valid dtype"},
      {one(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), four, "unknown dtype 'F33'"},
      {one(R"("dtype":"F32","shape":7,"data_offsets":[0,4])"), four, "not a list of sizes"},
      {one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), four, "the size -1"},
      {one(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), four, "the size 1.5"},
      {one(R"("dtype":"F32","shape":[1152921504606846976,16],"data_offsets":[0,4])"), four, "too large"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), four, "has 4 bytes, but F32 [2] needs 8"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), four, "truncated"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), four, "truncated or corrupt"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), four, "not two byte offsets"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615])"), four, "truncated or corrupt"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), four + four, "starts at byte"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), four + four, "but the file at"},
      {R"({"s":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       four, "starts at byte"},
  };
  const ScratchFolder scratch;
  for (const Wrong& wrong : cases) {
    put(scratch / "wrong.safetensors", with_length(wrong.header, wrong.data));
    const std::string said = error_of([&] { (void)read_safetensors_header(scratch / "wrong.safetensors"); });
    EXPECT_THAT(said, HasSubstr(wrong.said)) << wrong.header.substr(0, 200);
    EXPECT_THAT(said, HasSubstr("wrong.safetensors"));
  }
}

TEST(SafetensorsHeader, EveryTruncationIsAnError) {
  const ScratchFolder scratch;
  const std::string file = with_length(good_header, good_data);
  for (std::size_t length = 0; length < file.size(); ++length) {
    put(scratch / "f", file.substr(0, length));
    EXPECT_THROW((void)read_safetensors_header(scratch / "f"), Error) << length;
  }
}

TEST(SafetensorsHeader, MissingFilesAndFoldersAreErrors) {
  const ScratchFolder scratch;
  EXPECT_THAT(error_of([&] { (void)read_safetensors_header(scratch / "none"); }), HasSubstr("none: No such file"));
  EXPECT_THAT(error_of([&] { (void)read_safetensors_header(scratch.path()); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { (void)WeightFolder(scratch.path()); }), HasSubstr("neither model.safetensors nor"));
}

// Random damage must end in an Error or in tensors inside the file.
TEST(SafetensorsHeader, RandomDamageNeverEscapesTheFile) {
  const ScratchFolder scratch;
  const std::string file = with_length(good_header, good_data);
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = file;
    for (auto hits = 1 + random() % 4; hits > 0; --hits) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0: damaged[at] = static_cast<char>(random()); break;
        case 1: damaged[at] = "0123456789-{}[],:\"e."[random() % 20]; break;
        case 2: damaged.erase(at, 1 + random() % 8); break;
        case 3: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 16)); break;
      }
      if (damaged.empty()) damaged = "x";
    }
    put(scratch / "f", damaged);
    try {
      for (const auto& [name, tensor] : read_safetensors_header(scratch / "f")) {
        EXPECT_GE(tensor.first_byte, 8);
        EXPECT_LE(tensor.first_byte + tensor.num_bytes, static_cast<std::int64_t>(damaged.size()));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), ExitStatus::bad_input);
    }
  }
}

TEST(SafetensorsPlan, AlignsTheDataAndKeepsTheOrder) {
  const FolderPlan plan = plan_safetensors({{"z", DType::bfloat16, {3}}, {"a", DType::float32, {2, 2}}}, 1'000'000);
  ASSERT_EQ(plan.files.size(), 1U);
  const FilePlan& file = plan.files[0];
  EXPECT_EQ(file.file_name, "model.safetensors");
  EXPECT_EQ(file.header.size() % 8, 0U);
  EXPECT_EQ(file.tensors.at("z").first_byte, static_cast<std::int64_t>(file.header.size()));
  EXPECT_EQ(file.tensors.at("a").first_byte, static_cast<std::int64_t>(file.header.size()) + 6);
  EXPECT_EQ(file.num_bytes, static_cast<std::int64_t>(file.header.size()) + 22);
}

TEST(SafetensorsPlan, SplitsByBytes) {
  const FolderPlan plan = plan_safetensors({{"a", DType::float32, {4}},
                                            {"b", DType::float32, {4}},
                                            {"c", DType::float32, {100}},
                                            {"d", DType::float32, {1}}},
                                           32);
  ASSERT_EQ(plan.files.size(), 3U);  // a b | c alone, too large for any | d
  EXPECT_EQ(plan.files[0].file_name, "model-00001-of-00003.safetensors");
  EXPECT_EQ(plan.file_of("b"), &plan.files[0]);
  EXPECT_EQ(plan.file_of("c"), &plan.files[1]);
  EXPECT_EQ(plan.file_of("d"), &plan.files[2]);
  EXPECT_EQ(plan.file_of("e"), nullptr);
  EXPECT_THAT(plan.index, HasSubstr("\"total_size\": 436"));
}

TEST(WeightFolder, RefusesABadIndex) {
  const ScratchFolder scratch;
  put(scratch / "part.safetensors", with_length(good_header, good_data));
  const std::pair<std::string, std::string> cases[] = {
      {"", "index.json: not valid JSON at column 1: unexpected end of input"},
      {"[]", "index.json is not a JSON object"},
      {"{}", "weight_map"},
      {R"({"weight_map":{"a":7}})", "not a string"},
      {R"({"weight_map":{"a":"../part.safetensors"}})", "not the name of a file next to it"},
      {R"({"weight_map":{"a":"/tmp/part.safetensors"}})", "not the name of a file next to it"},
      {R"({"weight_map":{"a":".."}})", "not the name of a file next to it"},
      {R"({"weight_map":{"a":""}})", "not the name of a file next to it"},
      {R"({"weight_map":{"a":"gone.safetensors"}})", "No such file"},
      {R"({"weight_map":{"c":"part.safetensors"}})", "has no tensor 'c'"},
  };
  for (const auto& [index, said] : cases) {
    put(scratch / "model.safetensors.index.json", index);
    EXPECT_THAT(error_of([&] { (void)WeightFolder(scratch.path()); }), HasSubstr(said)) << index;
  }
}

// One of the copies would be read, and the other one ignored.
TEST(WeightFolder, RefusesATensorInTwoFiles) {
  const std::string index = R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})",
                    both = R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})",
                    file = with_length(good_header, good_data);
  const char *const index_file = "model.safetensors.index.json", *const shard = "model-00002-of-00002.safetensors";
  const std::tuple<std::vector<std::pair<const char*, std::string>>, const char*, const char*> cases[] = {
      {{{"one.safetensors", file}, {"two.safetensors", file}, {index_file, both}},
       "one.safetensors",
       "two.safetensors"},
      {{{"one.safetensors", file}, {shard, file}, {index_file, index}}, "one.safetensors", shard},
      {{{"model.safetensors", file}, {shard, file}}, "model.safetensors", shard}};
  for (const auto& [files, taken, other] : cases) {
    const ScratchFolder scratch;
    for (const auto& [name, text] : files) put(scratch / name, text);
    const std::string said = error_of([&] { (void)WeightFolder(scratch.path()); });
    for (const char* each : {"has tensor '", "' twice, in ", taken, other, " (remove one of them)"})
      EXPECT_THAT(said, HasSubstr(each));
  }
}

// A file of something else may have the same names: an adapter, a copy in another format.
TEST(WeightFolder, ReadsFilesOfWeightsAlone) {
  const ScratchFolder scratch;
  for (const char* name : {"model.safetensors", "model.fp16.safetensors", "adapter_model.safetensors"})
    put(scratch / name, with_length(good_header, good_data));
  EXPECT_EQ(WeightFolder(scratch.path()).entries().size(), 2);
}

}  // namespace
}  // namespace echelon
