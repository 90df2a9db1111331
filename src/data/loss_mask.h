// PREFIX.mask: which tokens of PREFIX.bin are trained. Without the file, all are.
//
//   "ECHMASK1"   u64 num_tokens, little-endian   a byte for each token: 1 if it counts as a target, else 0
#pragma once

#include "data/files/durable_file.h"
#include "data/files/mapped_file.h"
#include "data/indexed_dataset.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace echelon {

class LossMask {
 public:
  /// None if there is no such file. Throws Error if it is not of this dataset.
  [[nodiscard]] static std::optional<LossMask> of(const IndexedDataset& dataset);

  [[nodiscard]] bool is_trained(std::int64_t token) const {
    return file_.bytes()[header_bytes + static_cast<std::size_t>(token)] != 0;
  }
  /// XXH3 of the file, by which a run knows it again.
  [[nodiscard]] std::uint64_t digest() const;

  static constexpr std::size_t header_bytes = 16;

 private:
  explicit LossMask(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
};

/// Writes one as its tokens come. It has its name only once it is published. Throws Failure on a full disk.
class LossMaskWriter {
 public:
  explicit LossMaskWriter(const std::string& prefix);

  void add(std::span<const std::uint8_t> is_trained);
  void publish();

 private:
  DurableFile file_;
  std::uint64_t num_tokens_ = 0;
};

/// At once.
void write_loss_mask(const std::string& prefix, const std::vector<std::uint8_t>& is_trained);

}  // namespace echelon
