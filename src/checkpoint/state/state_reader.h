// Reads a checkpoint into any layout. Of a file only the blocks are read that have what is asked for, and each of them
// is compared with its digest.
#pragma once

#include "checkpoint/state/manifest.h"
#include "checkpoint/state/parameter_files.h"
#include "tensor/state_slice.h"

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>

namespace echelon {

/// Holds no open file and no values; ranks may share one.
class StateReader {
 public:
  /// Reads the manifest of a step's folder. Throws Error naming the file and the fault.
  explicit StateReader(std::filesystem::path folder);
  ~StateReader();
  StateReader(const StateReader&) = delete;
  StateReader& operator=(const StateReader&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  /// The blocks that were read last. A rank that reads one slice after the other keeps one, since neighbours share
  /// blocks.
  class Cache;

  /// Writes the slice's elements at `out` as values of its dtype, rounded to nearest even where the checkpoint has
  /// more digits; padding is zero. Throws Error if the checkpoint lacks some of them, or naming the file and the block
  /// that is damaged.
  void read(const StateSlice& slice, std::byte* out, Cache& cache) const;
  void read(const StateSlice& slice, std::byte* out) const;

  /// Throws Error unless the checkpoint has the parameter, with these sizes.
  void require_parameter(const std::string& name, const Sizes& sizes) const;
  /// Throws Error unless its files have the lengths that the manifest says, and together so many bytes.
  void require_bytes(std::int64_t least) const;
  /// Compares files that go with the model with their digests. Throws Error.
  void verify_copies() const;

  /// Reads everything and compares it with its digests. Throws Error naming the first file and block that is damaged,
  /// or what of a parameter is missing.
  void verify() const;

  /// Bytes of blocks read so far.
  [[nodiscard]] std::int64_t read_bytes() const { return read_bytes_; }

 private:
  struct FileIndex;
  [[nodiscard]] const FileIndex& index_of(std::size_t file) const;
  [[nodiscard]] std::vector<std::byte> read_block(const FileIndex& index, std::int64_t block) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::map<std::string, std::size_t, std::less<>> parameters_;  // by name, among the manifest's
  ParameterFiles parameter_files_;
  mutable std::mutex mutex_;                                 // of indices_
  mutable std::vector<std::unique_ptr<FileIndex>> indices_;  // by file, read when they are needed
  mutable std::atomic<std::int64_t> read_bytes_ = 0;
};

class StateReader::Cache {
 public:
  /// Bytes of the data of a file that are in one block.
  [[nodiscard]] const std::vector<std::byte>& block(const StateReader& reader, const FileIndex& index,
                                                    std::int64_t number);

 private:
  struct Entry {
    const FileIndex* index = nullptr;
    std::int64_t number = 0;
    std::vector<std::byte> bytes;
  };
  std::list<Entry> entries_;  // the last used one first
};

}  // namespace echelon
