// Hugging Face folders that somebody crafted, through the program.
#include "cli/crafted_folder.h"

#include "checkpoint/scratch_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const Commands of_weights = {"train", "eval", "verify"};

auto config(const std::string& from, const std::string& to) {
  return [=](const CraftedFolder& folder) { folder.change_file(folder.model() / "config.json", from, to); };
}

auto header(const std::string& from, const std::string& to) {
  return [=](const CraftedFolder& folder) {
    folder.change_weights([&](std::string& text) {
      ASSERT_NE(text.find(from), std::string::npos) << text;
      text.replace(text.find(from), from.size(), to);
    });
  };
}

std::string a_million_lists() { return std::string(1'000'000, '[') + std::string(1'000'000, ']'); }

TEST(CraftedModels, WithAConfigThatNobodyCanRun) {
  expect_refused_models({
      {config("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1000000000"), "num_hidden_layers = 1000000000"},
      {config("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 16384"), "too few for the 16384 layers"},
      {config("\"num_hidden_layers\": 1", "\"num_hidden_layers\": -1"), "num_hidden_layers = -1"},
      {config("\"vocab_size\": 32", "\"vocab_size\": 9223372036854775808"), "vocab_size = 9223372036854775808"},
      {config("\"vocab_size\": 32", "\"vocab_size\": " + a_million_lists()), "nested more than 32 levels deep"},
      {config("\"model_type\": \"llama\"", R"("model_type": "\u001b[31m)" + std::string(100'000, 'x') + "\""),
       "model_type = "},
      {config("\"rope_theta\": 10000", "\"rope_theta\": 1e999, \"x\": 0"), "config.json"},
      {config("\"llama\"", "\"llama\xff\""), "config.json: not valid JSON at"},
  });
}

TEST(CraftedModels, WithMoreTokensThanEmbeddings) {
  const CraftedFolder folder;
  std::string vocabulary;
  for (int id = 0; id < 33; ++id) vocabulary += fmt::format(R"({}"{}":{})", id > 0 ? "," : "", char('#' + id), id);
  put(folder.model() / "tokenizer.json", R"({"model":{"type":"BPE","merges":[],"vocab":{)" + vocabulary + "}}}");
  for (std::vector<std::string> command :
       {folder.on_model("train"), {"convert", folder.model().string(), (folder.path() / "converted").string()}}) {
    const Outcome outcome = folder.run(command);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr("tokenizer.json makes token 32 (C), but the model's vocab_size is 32"));
  }
  EXPECT_FALSE(fs::exists(folder.path() / "converted"));
}

// Without a tokenizer.json, the model's tokenizer is of another kind, and goes along as well.
TEST(CraftedModels, WithMorePiecesThanEmbeddings) {
  const CraftedFolder folder;
  const fs::path tests = fs::path(ECHELON_SOURCE_DIR) / "tests/data";
  fs::copy_file(tests / "sentencepiece/unigram.model", folder.model() / "tokenizer.model");
  for (std::vector<std::string> command :
       {folder.on_model("train"), {"convert", folder.model().string(), (folder.path() / "converted").string()}}) {
    const Outcome outcome = folder.run(command);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("tokenizer.model makes token "), HasSubstr("vocab_size is 32")));
  }
  EXPECT_FALSE(fs::exists(folder.path() / "converted"));
}

TEST(CraftedModels, WithAHeaderThatNobodyCanRead) {
  expect_refused_models({
      {header("{", "{\"x\":" + a_million_lists() + ","), "nested more than 32 levels deep"},
      {header("\"shape\":[32,16]", "\"shape\":[9223372036854775808,16]"), "has the size 9223372036854775808"},
      {header("\"shape\":[32,16]", "\"shape\":[1152921504606846976,1152921504606846976]"), "too large for any file"},
      {header("\"shape\":[32,16]", "\"shape\":[-32,-16]"), "has the size -32"},
      {header("\"data_offsets\":[0,", "\"data_offsets\":[2,"), "bytes"},
      {[](const CraftedFolder& folder) {
         const std::string bytes = get(folder.weights());
         put(folder.weights(), std::string(7, '\0') + '\x80' + bytes.substr(8));
       },
       "its header would have 9223372036854775808 bytes"},
      {[](const CraftedFolder& folder) {
         const std::string bytes = get(folder.weights());
         put(folder.weights(), std::string("\0\0\0\x05\0\0\0\0", 8) + bytes.substr(8));
       },
       "is truncated: its header has 83886080 bytes"},
      {[](const CraftedFolder& folder) {
         std::string bytes = get(folder.weights());
         put(folder.weights(), bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\xff"));
       },
       "holds a value that is NaN or infinite", of_weights},
      {header("{", R"({"\u001b[31m\u009b31m":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"),
       "has 1 tensor that its config.json does not ask for: \\x1b[31m"},
  });
}

/// The weights get another name, and an index which says so.
auto index(const std::string& name) {
  return [=](const CraftedFolder& folder) {
    fs::rename(folder.weights(), folder.model() / "a.safetensors");
    put(folder.model() / "model.safetensors.index.json", R"({"weight_map": {"model.norm.weight": ")" + name + "\"}}");
  };
}

auto moved_outside(const std::string& name) {
  return [=](const CraftedFolder& folder) { folder.move_outside(folder.model() / name); };
}

TEST(CraftedModels, WithFilesThatAreElsewhere) {
  expect_refused_models({
      {index("../outside/secret"), "'../outside/secret' is not the name of a file next to it"},
      {index("/etc/passwd"), "'/etc/passwd' is not the name of a file next to it"},
      {index(".."), "is not the name of a file next to it"},
      {index("\\u001b]0;title\\u0007"), "\\x1b]0;title\\x07"},
      {moved_outside("model.safetensors"), "which is outside of its folder"},
      {moved_outside("config.json"), "which is outside of its folder"},
      {[](const CraftedFolder& folder) {
         index("b.safetensors")(folder);
         fs::create_symlink(folder.outside() / "secret", folder.model() / "b.safetensors");
       },
       "which is outside of its folder"},
      {[](const CraftedFolder& folder) {
         fs::remove(folder.weights());
         EXPECT_EQ(mkfifo(folder.weights().c_str(), 0666), 0);
       },
       "is not a regular file"},
      {[](const CraftedFolder& folder) {
         fs::remove(folder.model() / "config.json");
         fs::create_symlink("/dev/zero", folder.model() / "config.json");
       },
       "is a link to /dev/zero"},
  });
}

TEST(CraftedModels, WithFewerTokensThanTheDataAreRefused) {
  const CraftedFolder folder;
  std::fstream file(folder.path() / "data.bin", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-2, std::ios::end).write("\x28\0", 2);  // the last token is 40
  file.close();
  for (const char* command : {"train", "eval"}) {
    const Outcome outcome = folder.run(folder.on_model(command));
    EXPECT_EQ(outcome.status, 2) << command;
    EXPECT_THAT(outcome.err, HasSubstr("data.bin holds token 40, but model.vocab_size = 32")) << command;
  }
}

// A download cache: snapshots/REVISION has links to blobs/HASH of the same model.
TEST(CraftedModels, OfADownloadCacheAreRead) {
  const CraftedFolder folder;
  const fs::path cache = folder.path() / "models--a--b", snapshot = cache / "snapshots/0123abcd",
                 blobs = cache / "blobs";
  fs::create_directories(snapshot / "onnx");
  fs::create_directories(blobs);
  for (const char* name : {"config.json", "model.safetensors"}) {
    fs::rename(folder.model() / name, blobs / fmt::format("{}-hash", name));
    fs::create_symlink(fmt::format("../../blobs/{}-hash", name), snapshot / name);
    fs::create_symlink(fmt::format("../../../blobs/{}-hash", name), snapshot / "onnx" / name);
  }
  for (const fs::path& model : {snapshot, snapshot / "onnx"}) {
    const Outcome outcome = folder.run({"eval", "--model", model, "--data", folder.path() / "data"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
  // A folder of the same form that is not this model's.
  fs::create_directories(folder.outside() / "blobs");
  fs::rename(blobs / "config.json-hash", folder.outside() / "blobs/config.json-hash");
  fs::remove(snapshot / "config.json");
  fs::create_symlink("../../../outside/blobs/config.json-hash", snapshot / "config.json");
  const Outcome outcome = folder.run({"eval", "--model", snapshot, "--data", folder.path() / "data"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("which is outside of its folder"));
}

}  // namespace
}  // namespace echelon
