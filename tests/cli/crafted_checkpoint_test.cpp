// Checkpoints that somebody crafted, through the program: each command that reads what is wrong refuses it in one
// sentence with status 2, and nothing outside of the folder is read or changed.
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

using nlohmann::ordered_json;
using testing::HasSubstr;

const Commands of_files = {"train", "eval", "verify", "convert"};

/// Replaces a part of the manifest.
auto manifest(std::string from, std::string to) {
  return
      [from = std::move(from), to = std::move(to)](const CraftedFolder& folder) { folder.change_manifest(from, to); };
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }
std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

const std::string first_file = "attempt-0001-rank-00000.safetensors";

TEST(CraftedCheckpoints, WithAManifestThatNoProgramWrites) {
  expect_refused_checkpoints({
      {manifest(first_file, "../../../outside/secret"), "is not the name of a file next to it"},
      {manifest(first_file, "/etc/passwd"), "'/etc/passwd' is not the name of a file next to it"},
      {manifest("\"requires\":[]", "\"requires\":[\"\\u001b[31mteleport\"]"), "requires '\\x1b[31mteleport'"},
      {manifest("\"requires\":[]", "\"requires\":" + nested(1'000'000)), "nested more than 32 levels deep"},
      {manifest("\"requires\":[]", "\"requires\":[" + repeated("{},", 1'000'000) + "{}]"), "lists and objects"},
      {manifest("\"step\":2", "\"step\":9223372036854775808"), "'step' is no count"},
      {manifest("\"step\":2", "\"step\":-2"), "'step' is no count"},
      {manifest("\"loss_scale\":1024.0", "\"loss_scale\":NaN"), "not valid JSON at column 116"},
      {manifest("\"loss_scale\":1024.0", "\"loss_scale\":-1024.0"), "'loss_scale' is not above 0"},
      {manifest("\"bytes\":10888", "\"bytes\":9223372036854775807"), "'bytes' is no count"},
      {manifest("[[0,6],[10,1]]", "[[0,1000000000]]"), "beyond the 11 that there are"},
      {manifest("[[0,6],[10,1]]", "[[0,6],[5,1]]"), "names a parameter of"},
      {manifest("[32,16]", "[9223372036854775807,16]"), "the sizes of parameter 'model.embed_tokens.weight'"},
      {manifest("model.norm.weight\",[16]", "\\u001b]0;x\\u0007\",[0]"), "'\\x1b]0;x\\x07' are impossible"},
      {manifest("\"model.norm.weight\"", "\"model.norm\xff\""), "ill-formed UTF-8"},
      {manifest("num_hidden_layers = 1\\n", "num_hidden_layers = 1000000000\\n"), "num_hidden_layers = 1000000000"},
      {manifest("model_type = \\\"llama\\\"", "path = \\\"/etc\\\""), "model.path = '/etc' cannot be read"},
      {manifest("max_norm = 1\\n", std::string(200'000, 'm') + " = 1\\n"), "there is no key training.mmmm"},
      {manifest("max_norm = 1\\n", "max_norm = " + std::string(100'000, '[') + "\\n"), "nest"},
      {manifest("\"changes\":[]}", "\"changes\":[" + nested(20) + "]}"), "'changes' is no list of texts"},
      {[](const CraftedFolder& folder) { std::filesystem::resize_file(folder.manifest(), 65LL << 20); },
       "more than the 67108864 that such a file may have"},
  });
}

// Models that a manifest claims, of which its files have not enough.
TEST(CraftedCheckpoints, WithAModelThatIsNotThere) {
  const Commands readers = {"train", "eval", "convert"};
  expect_refused_checkpoints({
      {manifest("num_hidden_layers = 1\\n", "num_hidden_layers = 16384\\n"), "16384", readers},
      {manifest("vocab_size = 32\\n", "vocab_size = 2147483647\\n"), "2147483647", readers},
      {[](const CraftedFolder& folder) {
         folder.change_manifest("vocab_size = 32\\n", "vocab_size = 2147483647\\n");
         folder.change_manifest("[32,16]", "[2147483647,16]");
       },
       "checkpoint/step-2 ha", Commands{"train", "eval", "convert", "verify"}},
  });
}

TEST(CraftedCheckpoints, WithMillionsOfEntries) {
  const auto files_and_parameters = [](std::string& body) {
    std::string parameters = "\"parameters\":[[\"p0\",[1]]", files = "\"files\":[";
    for (int i = 1; i < 20'000; ++i) parameters += fmt::format(",[\"p{}\",[1]]", i);
    for (int i = 0; i < 20'000; ++i)
      files +=
          fmt::format(R"({}{{"name":"{}","bytes":1,"header":"{:032}","parameters":[[0,20000]]}})", i ? "," : "", i, 0);
    body = body.substr(0, body.find("\"parameters\":[[\"model")) + parameters + "]," + files + "],\"copies\":[]}";
  };
  expect_refused_checkpoints({
      {[&](const CraftedFolder& folder) { folder.change_manifest(files_and_parameters); }, "", of_files},
      {[](const CraftedFolder& folder) {
         folder.change_manifest(
             "{\"attempt\":1,\"from\"",
             repeated(R"({"attempt":1,"from":"\u009b2J","changes":[]},)", 20'000) + "{\"attempt\":1,\"from\"");
         folder.change_manifest("\"format\":1,", "\"format\":1," + repeated("\"attempt\":7,", 100'000));
       },
       "a list that is long, and keys that are repeated, are no fault", Commands{}},
  });
}

/// Changes the header of the second state file, which has the rows 16 to 31 of the embedding.
auto state(const std::function<void(ordered_json&)>& change) {
  return [=](const CraftedFolder& folder) { folder.change_state(change); };
}

auto renamed(const std::string& from, const std::string& to) {
  return state([=](ordered_json& header) {
    ordered_json changed;
    for (const auto& [name, tensor] : header.items()) changed[name == from ? to : name] = tensor;
    header = changed;
  });
}

TEST(CraftedCheckpoints, WithRectanglesThatDoNotFit) {
  const std::string rows = "weight/model.embed_tokens.weight@16:32,0:16",
                    embedding = "weight/model.embed_tokens.weight@";
  expect_refused_checkpoints({
      {renamed(rows, embedding + "8:24,0:16"), "of 'weight", of_files},  // rows 8 to 15 twice, 24 to 31 never
      {renamed(rows, embedding + "0:16,0:16"), "of 'weight", of_files},
      {renamed(rows, "later/" + rows), " numbers of ", of_files},
      {renamed(rows, embedding + "17:33,0:16"), "is not a part of a parameter of sizes [32, 16]", of_files},
      {renamed(rows, embedding + "0:4294967296,0:4294967312"), "is not a part of a parameter", of_files},
      {renamed(rows, embedding + "0:16"), "is not a part of a parameter", of_files},
      {renamed(rows, embedding + "16:31,0:16"), "has another size than its name", of_files},
      {renamed(rows, embedding + "\x1b[2J"), " numbers of ", of_files},
      {state([](ordered_json& header) { header["__metadata__"]["echelon.block_bytes"] = "1"; }),
       "its blocks have 1 bytes", of_files},
      {state([](ordered_json& header) { header["__metadata__"]["echelon.xxh3_128"] = ""; }),
       "not one digest for each of 1 blocks", of_files},
      {state([](ordered_json& header) { header["__metadata__"] = ordered_json::parse(nested(30)); }), "has no digests",
       of_files},
      {state([=](ordered_json& header) {
         header[rows]["shape"] = {1ULL << 63U, 0};
       }),
       "has the size 9223372036854775808", of_files},
      {state([=](ordered_json& header) {
         header[rows]["shape"] = {-16, -16};
       }),
       "has the size -16", of_files},
      {state([=](ordered_json& header) { header[rows]["dtype"] = "I32"; }), "has dtype I32, which no state has",
       of_files},
      {state([=](ordered_json& header) {
         header[rows]["data_offsets"] = {0, 1024};
       }),
       "starts at byte", of_files},
  });
}

TEST(CraftedCheckpoints, WithSomethingElseInPlaceOfAFile) {
  namespace fs = std::filesystem;
  expect_refused_checkpoints({
      {[](const CraftedFolder& folder) { folder.move_outside(folder.manifest()); }, "which is outside of its folder"},
      {[](const CraftedFolder& folder) { folder.move_outside(folder.state_file()); }, "which is outside of its folder",
       of_files},
      {[](const CraftedFolder& folder) {
         fs::remove(folder.state_file());
         fs::create_symlink("/dev/zero", folder.state_file());
       },
       "is a link to /dev/zero", of_files},
      {[](const CraftedFolder& folder) {
         fs::remove(folder.manifest());
         fs::create_symlink(folder.manifest().filename(), folder.manifest());
       },
       "Too many levels of symbolic links"},
      {[](const CraftedFolder& folder) {
         fs::remove(folder.manifest());
         EXPECT_EQ(mkfifo(folder.manifest().c_str(), 0666), 0);
       },
       "is not a regular file"},
      {[](const CraftedFolder& folder) {
         fs::remove(folder.state_file());
         EXPECT_EQ(mkfifo(folder.state_file().c_str(), 0666), 0);
       },
       "is not a regular file", of_files},
      {[](const CraftedFolder& folder) {
         fs::remove(folder.state_file());
         fs::create_directory(folder.state_file());
       },
       "is not a regular file", of_files},
      {[](const CraftedFolder& folder) {
         folder.change_manifest("\"copies\":[]", R"("copies":[{"name":"tokenizer.json","bytes":15,"digest":")" +
                                                     std::string(32, '0') + "\"}]");
         fs::create_symlink(folder.outside() / "secret", folder.step() / "tokenizer.json");
       },
       "which is outside of its folder", Commands{"verify", "convert"}},
      {[](const CraftedFolder& folder) {
         fs::rename(folder.state_file(), folder.step() / "elsewhere");
         fs::create_symlink("elsewhere", folder.state_file());
       },
       "a link to a file of the same folder is no fault", Commands{}},
  });
}

}  // namespace
}  // namespace echelon
