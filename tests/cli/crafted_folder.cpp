#include "cli/crafted_folder.h"

#include "checkpoint/scratch_folder.h"
#include "checkpoint/state/digest.h"
#include "cli/open_watch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace echelon {
namespace {

namespace fs = std::filesystem;
const fs::path fixture = fs::path(ECHELON_SOURCE_DIR) / "tests/resume/fixtures/format-1";

std::uintmax_t bytes_below(const fs::path& folder) {
  std::uintmax_t sum = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (fs::is_regular_file(entry.symlink_status())) sum += entry.file_size();
  return sum;
}

/// A terminal takes control characters as commands: those of ASCII, and those of Unicode in two bytes.
bool is_printable(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) return false;
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return false;
  }
  return true;
}

std::string with_length(const std::string& header) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header;
}

/// Header and data of a file of tensors.
std::pair<std::string, std::string> parts_of(const fs::path& file) {
  const std::string bytes = get(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return {bytes.substr(sizeof length, length), bytes.substr(sizeof length + length)};
}

fs::path new_folder() {
  std::string pattern = (fs::temp_directory_path() / "echelon-crafted-XXXXXX").string();
  return mkdtemp(pattern.data());
}

}  // namespace

CraftedFolder::CraftedFolder() {
  static const CraftedFolder intact{Intact()};
  path_ = new_folder();
  fs::copy(intact.path_, path_, fs::copy_options::recursive);
  usual_memory_ = intact.usual_memory_;
}

CraftedFolder::CraftedFolder(Intact) : path_(new_folder()) {
  fs::create_directories(step());
  fs::create_directories(outside());
  for (const auto& entry : fs::directory_iterator(fixture / "step-2")) fs::copy(entry.path(), step());
  for (const char* name : {"data.bin", "data.idx"}) fs::copy(fixture / name, path_ / name);
  put(outside() / "secret", "the user's own");
  put(path_ / "run.toml", nlohmann::json::parse(get(manifest()))["manifest"]["config"].get<std::string>());
  EXPECT_EQ(run_echelon({"convert", step(), model()}).status, 0);
  for (const char* command : {"train", "eval", "inspect", "verify", "convert"}) {
    const Outcome outcome = run_echelon(on_checkpoint(command));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    usual_memory_[on_checkpoint(command)[0]] = outcome.peak_memory_bytes;
  }
  for (const char* left : {"out", "converted"}) fs::remove_all(path_ / left);
  fs::create_directories(step());
  for (const auto& entry : fs::directory_iterator(fixture / "step-2")) fs::copy(entry.path(), step());
}

CraftedFolder::~CraftedFolder() { fs::remove_all(path_); }

void CraftedFolder::change_manifest(const std::function<void(std::string& body)>& change) const {
  const std::string text = get(manifest()), before = "\"manifest\":";
  const std::size_t first = text.find(before) + before.size();
  std::string body = text.substr(first, text.size() - first - 2);
  change(body);
  put(manifest(), fmt::format("{{\"digest\":\"{}\",\"manifest\":{}}}\n", to_text(digest_of(body)), body));
}

void CraftedFolder::change_manifest(const std::string& from, const std::string& to) const {
  change_manifest([&](std::string& body) {
    ASSERT_NE(body.find(from), std::string::npos) << from;
    body.replace(body.find(from), from.size(), to);
  });
}

void CraftedFolder::change_state(const std::function<void(nlohmann::ordered_json& header)>& change) const {
  const auto [header, data] = parts_of(state_file());
  const std::string before = with_length(header);
  auto json = nlohmann::ordered_json::parse(header);
  change(json);
  const std::string after = with_length(json.dump());
  put(state_file(), after + data);
  change_manifest(to_text(digest_of(before)), to_text(digest_of(after)));
  change_manifest(fmt::format("\"bytes\":{}", before.size() + data.size()),
                  fmt::format("\"bytes\":{}", after.size() + data.size()));
}

void CraftedFolder::change_weights(const std::function<void(std::string& header)>& change) const {
  auto [header, data] = parts_of(weights());
  change(header);
  put(weights(), with_length(header) + data);
}

void CraftedFolder::change_file(const fs::path& file, const std::string& from, const std::string& to) const {
  std::string text = get(file);
  ASSERT_NE(text.find(from), std::string::npos) << from;
  put(file, text.replace(text.find(from), from.size(), to));
}

void CraftedFolder::move_outside(const fs::path& file) const {
  fs::rename(file, outside() / file.filename());
  fs::create_symlink(outside() / file.filename(), file);
}

std::vector<std::string> CraftedFolder::on_checkpoint(const std::string& command) const {
  if (command == "train")
    return {"train", path_ / "run.toml", "--data.path=" + (path_ / "data").string(), "--output.dir=" + out().string(),
            "--checkpoint.load=2"};
  if (command == "eval") return {"eval", "--model", step(), "--data", path_ / "data"};
  if (command == "verify") return {"inspect", step(), "--verify"};
  if (command == "convert") return {"convert", step(), path_ / "converted"};
  return {command, step()};
}

std::vector<std::string> CraftedFolder::on_model(const std::string& command) const {
  if (command == "train")
    return {"train",
            "--model.path=" + model().string(),
            "--checkpoint.initial_load_path=" + model().string(),
            "--data.path=" + (path_ / "data").string(),
            "--output.dir=" + (path_ / "other").string(),
            "--training.seq_len=8",
            "--training.steps=1",
            "--training.global_batch_size=1"};
  if (command == "eval") return {"eval", "--model", model(), "--data", path_ / "data"};
  if (command == "verify") return {"inspect", model(), "--verify"};
  return {command, model()};
}

Outcome CraftedFolder::run(const std::vector<std::string>& arguments) const {
  const OpenWatch watch(outside());
  const auto begun = std::chrono::steady_clock::now();
  Outcome outcome = run_echelon(arguments);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  EXPECT_FALSE(watch.has_seen_one()) << "something outside of the folder was opened or changed";
  EXPECT_TRUE(is_printable(outcome.out + outcome.err)) << outcome.out << outcome.err;
  const std::int64_t most = (64 << 20) + 20 * static_cast<std::int64_t>(bytes_below(path_));
  EXPECT_LT(outcome.peak_memory_bytes - usual_memory_.at(arguments[0]), most);
  return outcome;
}

namespace {

using ArgumentsOf = std::vector<std::string> (CraftedFolder::*)(const std::string& command) const;

void expect_refused(const std::vector<Crafted>& table, const Commands& commands, ArgumentsOf arguments) {
  for (const Crafted& crafted : table) {
    SCOPED_TRACE(crafted.said);
    const CraftedFolder folder;
    crafted.craft(folder);
    for (const std::string& command : commands) {
      SCOPED_TRACE(command);
      const Outcome outcome = folder.run((folder.*arguments)(command));
      if (crafted.refused_by && !crafted.refused_by->contains(command)) {
        EXPECT_EQ(outcome.status, 0) << outcome.err;
        continue;
      }
      EXPECT_EQ(outcome.status, 2) << outcome.out.substr(0, 1000) << outcome.err;
      EXPECT_NE(outcome.err.find(crafted.said), std::string::npos) << outcome.err;
      EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
      EXPECT_LT(outcome.err.size(), 1500U);
      EXPECT_FALSE(fs::exists(folder.path() / "converted"));
    }
  }
}

}  // namespace

void expect_refused_checkpoints(const std::vector<Crafted>& table) {
  expect_refused(table, {"train", "eval", "inspect", "verify", "convert"}, &CraftedFolder::on_checkpoint);
}

void expect_refused_models(const std::vector<Crafted>& table) {
  expect_refused(table, {"train", "eval", "inspect", "verify"}, &CraftedFolder::on_model);
}

}  // namespace echelon
