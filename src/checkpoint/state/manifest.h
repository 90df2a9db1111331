// The manifest of a checkpoint: what was saved, by which run, and in which files. A step's folder is a checkpoint once
// it has one.
#pragma once

#include "checkpoint/state/digest.h"
#include "tensor/dtype.h"
#include "tensor/tensor_slice.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace echelon {

/// What the tokens of a dataset are known by.
struct DataFingerprint {
  std::int64_t bin_bytes = 0, idx_bytes = 0;
  Digest idx, sampled_bin;             // of the whole .idx file, and of blocks of the .bin file
  std::optional<Digest> packing = {};  // of the sequences of packed data
  bool operator==(const DataFingerprint&) const = default;
};

/// What the routers of a model carry from step to step: of layers with experts, each [layers, experts].
struct SavedRouters {
  std::vector<std::int64_t> counts = {};  // rows of the experts in the last step
  std::vector<float> bias = {};           // of the choice; empty: there is none
  bool operator==(const SavedRouters&) const = default;
};

/// How far training was after a step.
struct RunScalars {
  std::int64_t step = 0;
  std::int64_t skipped_steps = 0;              // whose gradients overflowed; the optimizer does not count them
  std::optional<double> loss_scale = {};       // of the next step
  std::int64_t steps_since_scale_changed = 0;  // without overflow
  std::int64_t first_lr_step = 0;              // the schedule of learning rates started after this step
  std::int64_t sequences = 0;                  // consumed; the next step starts with this one
  std::int64_t seq_len = 0;
  DataFingerprint data;
  SavedRouters routers = {};
  bool operator==(const RunScalars&) const = default;
};

/// A start of the program from a checkpoint.
struct LineageEntry {
  std::int64_t attempt = 1;
  std::string from = {};                  // the checkpoint; empty: the run started
  std::vector<std::string> changes = {};  // "optimizer.lr: was 0.001, is 0.0005"
  bool operator==(const LineageEntry&) const = default;
};

struct Manifest {
  struct Parameter {
    std::string name;
    Sizes sizes;
    std::vector<std::string> states = {};  // that it has; empty: all of Manifest::states
    [[nodiscard]] bool has(std::string_view state) const {
      return states.empty() || std::ranges::find(states, state) != states.end();
    }
    bool operator==(const Parameter&) const = default;
  };
  struct File {
    std::string name;
    std::int64_t num_bytes = 0;
    Digest header;                       // of the bytes before the data, which have the digests of the data
    std::vector<Range> parameters = {};  // of which it has a part, in the order of Manifest::parameters
    bool operator==(const File&) const = default;
  };
  struct Copy {  // of a file that goes with the model, such as its tokenizer
    std::string name;
    std::int64_t num_bytes = 0;
    Digest content;
    bool operator==(const Copy&) const = default;
  };

  std::int64_t attempt = 1;
  std::optional<Digest> base = {};  // of the model whose adapters are saved (checkpoint/base_digest.h)
  std::string config;               // of the run, in TOML, with every key
  RunScalars scalars;
  std::vector<LineageEntry> lineage;  // the last one is this attempt's
  // The kernels that multiplied, by dtype ("openblas/Haswell"); empty where the device has no choice.
  std::map<std::string, std::string> products = {};
  std::vector<Parameter> parameters;
  std::vector<std::pair<std::string, DType>> states;  // by name, in the order of the files
  std::vector<File> files;
  std::vector<Copy> copies;
  bool operator==(const Manifest&) const = default;
};

/// {"digest": ..., "manifest": {...}} in one line.
[[nodiscard]] std::string to_text(const Manifest& manifest);
/// Of that text, whatever the scalars and digests are.
[[nodiscard]] std::int64_t most_bytes_of(Manifest manifest);
/// Of a text that is read at most.
inline constexpr std::int64_t largest_manifest_bytes = 64 << 20;
/// Throws Error if a manifest of so many bytes could not be read.
void require_readable(std::int64_t manifest_bytes);
/// Throws Error naming `path` and the fault: a wrong digest, a newer format, something that no program writes.
[[nodiscard]] Manifest parse_manifest(const std::string& text, const std::filesystem::path& path);

/// The manifest of a step's folder: of the highest attempt that has one. None if the folder has none.
[[nodiscard]] std::optional<std::filesystem::path> find_manifest(const std::filesystem::path& folder);
/// Throws the errors of parse_manifest, and Error if the folder has none.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace echelon
