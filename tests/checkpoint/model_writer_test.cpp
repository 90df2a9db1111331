// The folder has its final name only when it is complete, whatever fails.
#include "checkpoint/hf/model_writer.h"

#include "base/error.h"
#include "checkpoint/model_reader.h"
#include "scratch_folder.h"
#include "tiny_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <nlohmann/json.hpp>

#include <csignal>

namespace echelon {
namespace {

using ::testing::HasSubstr;

const ModelSpec model = tiny_model(Family::llama, false);

void write_parameters(ModelWriter& writer, double factor = 1) {
  for (const NamedShape& parameter : global_parameters(model)) {
    std::vector<double> values = whole(parameter);
    for (double& value : values) value *= factor;
    writer.write(parameter.name, TensorSlice(parameter.sizes), DType::float64, values.data());
  }
}

void write_model(const ModelWriter::Options& options, double factor = 1) {
  ModelWriter writer(options);
  writer.begin();
  write_parameters(writer, factor);
  writer.finish();
}

float first_weight(const std::filesystem::path& folder) {
  const NamedShape embedding = global_parameters(model)[0];
  std::vector<float> values(static_cast<std::size_t>(embedding.sizes.num_elements()));
  ModelReader(folder).read(embedding.name, TensorSlice(embedding.sizes), DType::float32, values.data());
  return values[0];
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ModelWriter, WritesTheFolderAndNothingElse) {
  const ScratchFolder scratch;
  write_model({.folder = scratch / "a/b/model/", .model = model});
  EXPECT_EQ(names_in(scratch / "a/b"), (std::vector<std::string>{"model"}));
  EXPECT_EQ(names_in(scratch / "a/b/model"), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST(ModelWriter, ReplacesAModel) {
  const ScratchFolder scratch;
  write_model({.folder = scratch / "model", .model = model, .max_file_bytes = 2000});
  const float before = first_weight(scratch / "model");
  write_model({.folder = scratch / "model", .model = model}, 2);
  EXPECT_EQ(first_weight(scratch / "model"), 2 * before);
  EXPECT_EQ(names_in(scratch.path()), (std::vector<std::string>{"model"}));
  // None of the previous folder's parts.
  EXPECT_EQ(names_in(scratch / "model"), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST(ModelWriter, LeavesWhatIsNoModelAlone) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "home");
  put(scratch / "home/thesis.tex", "precious");
  put(scratch / "file", "precious");
  std::filesystem::create_directory(scratch / "x.tmp");
  put(scratch / "x.tmp/thesis.tex", "precious");
  for (const std::string_view name : {"home", "file", "x"}) {
    ModelWriter writer({.folder = scratch / name, .model = model});
    EXPECT_THAT(error_of([&] { writer.begin(); }), HasSubstr("choose another name for the model"));
  }
  EXPECT_EQ(get(scratch / "home/thesis.tex"), "precious");
  EXPECT_EQ(get(scratch / "file"), "precious");
  EXPECT_EQ(get(scratch / "x.tmp/thesis.tex"), "precious");
}

TEST(ModelWriter, AnUnfinishedFolderDisappears) {
  const ScratchFolder scratch;
  {
    ModelWriter writer({.folder = scratch / "model", .model = model});
    writer.begin();
    write_parameters(writer);
    EXPECT_FALSE(std::filesystem::exists(scratch / "model"));
    EXPECT_TRUE(std::filesystem::exists(scratch / "model.tmp"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(ModelWriter, WhatACrashLeftIsInNobodysWay) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "model.tmp");
  put(scratch / "model.tmp/model-00001-of-00002.safetensors", "half");
  std::filesystem::create_directory(scratch / "model.old");
  put(scratch / "model.old/config.json", "half");
  write_model({.folder = scratch / "model", .model = model});
  EXPECT_EQ(names_in(scratch.path()), (std::vector<std::string>{"model"}));
  EXPECT_EQ(names_in(scratch / "model"), (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST(ModelWriter, CopiesTheTokenizer) {
  const ScratchFolder scratch;
  put(scratch / "tokenizer.json", "a tokenizer");
  std::int64_t id = 7;
  const ModelWriter::Options options = {.folder = scratch / "model",
                                        .model = model,
                                        .tokenizer = scratch / "tokenizer.json",
                                        .special_tokens = [&](const std::filesystem::path& tokenizer) {
                                          EXPECT_EQ(tokenizer, scratch / "tokenizer.json");
                                          return SpecialTokens{.bos = id, .eos = id};
                                        }};
  write_model(options);
  EXPECT_EQ(get(scratch / "model/tokenizer.json"), "a tokenizer");
  EXPECT_EQ(nlohmann::json::parse(get(scratch / "model/config.json")).at("eos_token_id"), 7);
  const auto config = nlohmann::json::parse(get(scratch / "model/tokenizer_config.json"));
  EXPECT_EQ(config.at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(config.at("model_max_length"), model.max_position_embeddings);

  // The model's tokens end at 16.
  id = 17;
  write_model(options);
  EXPECT_TRUE(nlohmann::json::parse(get(scratch / "model/config.json")).at("eos_token_id").is_null());
}

TEST(ModelWriter, ABadTokenizerIsNamedBeforeAnythingIsWritten) {
  const ScratchFolder scratch;
  ModelWriter writer({.folder = scratch / "model",
                      .model = model,
                      .tokenizer = scratch / "tokenizer.json",
                      .special_tokens = [](const auto&) -> SpecialTokens { throw Error("is not a tokenizer.json"); }});
  EXPECT_THAT(error_of([&] { writer.begin(); }), HasSubstr("is not a tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "model.tmp"));
}

TEST(ModelWriter, RefusesForeignParameters) {
  const ScratchFolder scratch;
  ModelWriter writer({.folder = scratch / "model", .model = model});
  writer.begin();
  const double value = 0;
  EXPECT_THROW(writer.write("model.embed_tokens.weight", TensorSlice({1, 1}), DType::float64, &value), Error);
  EXPECT_THROW(writer.write("model.embed_positions.weight", TensorSlice({1, 1}), DType::float64, &value), Error);
}

// Limits the size of this process's files during its lifetime.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t num_bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = num_bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(ModelWriter, AFileThatCannotGrowIsAFailure) {
  const ScratchFolder scratch;
  write_model({.folder = scratch / "model", .model = model});
  const float before = first_weight(scratch / "model");
  {
    const FileSizeLimit limit(1000);
    EXPECT_THROW(write_model({.folder = scratch / "model", .model = model}, 2), Failure);
  }
  EXPECT_EQ(first_weight(scratch / "model"), before);
  EXPECT_EQ(names_in(scratch.path()), (std::vector<std::string>{"model"}));
}

TEST(ModelWriter, AWriteThatFailsIsAFailure) {
  const ScratchFolder scratch;
  {
    ModelWriter writer({.folder = scratch / "model", .model = model});
    writer.begin();
    // Simulates a disk failure: the file exists in full size, but accepts no byte after the limit.
    const FileSizeLimit limit(1000);
    EXPECT_THAT(error_of([&] { write_parameters(writer); }), HasSubstr("model.tmp/model.safetensors: File too large"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

class SmallDisk {
 public:
  explicit SmallDisk(const std::filesystem::path& at)
      : at_(at), is_mounted_(::mount("tmpfs", at.c_str(), "tmpfs", 0, "size=64k") == 0) {}
  ~SmallDisk() {
    if (is_mounted_) ::umount(at_.c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  [[nodiscard]] bool is_mounted() const { return is_mounted_; }

 private:
  std::filesystem::path at_;
  bool is_mounted_;
};

TEST(ModelWriter, AFullDiskIsAFailure) {
  const ScratchFolder scratch;
  const SmallDisk disk(scratch.path());
  if (!disk.is_mounted())
    GTEST_SKIP() << "no right to mount a small disk; the tests with a file size limit cover the same path";
  ModelSpec large = model;
  large.vocab_size = 10'000;
  {
    ModelWriter writer({.folder = scratch / "model", .model = large});
    const std::string said = error_of([&] { writer.begin(); });
    EXPECT_THAT(said, HasSubstr("model.tmp/model.safetensors: No space left on device"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  write_model({.folder = scratch / "model", .model = model});  // the space was freed
}

}  // namespace
}  // namespace echelon
