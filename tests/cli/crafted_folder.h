// Folders that somebody crafted: an intact checkpoint and an intact model, changed in one way each.
#pragma once

#include "cli/program.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace echelon {

/// A folder of a test: out/checkpoint/step-2 and model/, which are intact at first, and outside/, which no command may
/// look into or change.
class CraftedFolder {
 public:
  CraftedFolder();
  ~CraftedFolder();
  CraftedFolder(const CraftedFolder&) = delete;
  CraftedFolder& operator=(const CraftedFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path out() const { return path_ / "out"; }
  [[nodiscard]] std::filesystem::path step() const { return out() / "checkpoint/step-2"; }
  [[nodiscard]] std::filesystem::path model() const { return path_ / "model"; }
  [[nodiscard]] std::filesystem::path outside() const { return path_ / "outside"; }
  [[nodiscard]] std::filesystem::path manifest() const { return step() / "attempt-0001-manifest.json"; }
  [[nodiscard]] std::filesystem::path state_file() const { return step() / "attempt-0001-rank-00001.safetensors"; }
  [[nodiscard]] std::filesystem::path weights() const { return model() / "model.safetensors"; }

  /// Changes the text of the manifest, which then has the right digest again.
  void change_manifest(const std::function<void(std::string& body)>& change) const;
  void change_manifest(const std::string& from, const std::string& to) const;
  /// Changes the header of the second state file, and makes the manifest agree.
  void change_state(const std::function<void(nlohmann::ordered_json& header)>& change) const;
  /// Changes the header of the model's weights.
  void change_weights(const std::function<void(std::string& header)>& change) const;
  void change_file(const std::filesystem::path& file, const std::string& from, const std::string& to) const;
  /// The file moves to outside/, and a link takes its place.
  void move_outside(const std::filesystem::path& file) const;

  /// The commands that read a checkpoint: train, eval, inspect, verify and convert.
  [[nodiscard]] std::vector<std::string> on_checkpoint(const std::string& command) const;
  /// The commands that read a model: train, eval and inspect.
  [[nodiscard]] std::vector<std::string> on_model(const std::string& command) const;

  /// Runs a command. It must print nothing that a terminal takes as a command, neither look into outside/ nor change
  /// it, and take time and memory in proportion to what there is.
  [[nodiscard]] Outcome run(const std::vector<std::string>& arguments) const;

 private:
  struct Intact {};
  explicit CraftedFolder(Intact);

  std::filesystem::path path_;
  std::map<std::string, std::int64_t> usual_memory_;
};

using Commands = std::set<std::string>;

/// What somebody does to an intact folder, and the commands that refuse it then with these words.
struct Crafted {
  std::function<void(const CraftedFolder&)> craft;
  std::string said;
  std::optional<Commands> refused_by = {};  // none: all that read such a folder
};

/// Each is refused with status 2, in one line. What is not refused ends with status 0.
void expect_refused_checkpoints(const std::vector<Crafted>& table);
void expect_refused_models(const std::vector<Crafted>& table);

}  // namespace echelon
