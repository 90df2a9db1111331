#include "train/data/data_fingerprint.h"

#include "base/error.h"
#include "data/packing/packing_file.h"
#include "files/file.h"

#include <algorithm>

namespace echelon {

DataFingerprint fingerprint_of(const DatasetBatches& batches) {
  constexpr std::int64_t num_samples = 64, sample_bytes = 4096;
  const IndexedDataset& dataset = batches.dataset();
  const std::string idx = read_text(dataset.prefix() + ".idx", INT64_MAX);
  const File bin = File::open_to_read(dataset.prefix() + ".bin");
  DataFingerprint fingerprint = {
      .bin_bytes = bin.num_bytes(), .idx_bytes = std::ssize(idx), .idx = digest_of(idx), .sampled_bin = {}};
  std::string samples;
  const std::int64_t last = std::max<std::int64_t>(0, fingerprint.bin_bytes - sample_bytes);
  for (std::int64_t i = 0; i < num_samples; ++i) {
    const std::int64_t first = last / (num_samples - 1) * i;
    std::string sample(static_cast<std::size_t>(std::min(sample_bytes, fingerprint.bin_bytes - first)), '\0');
    bin.read_at(first, sample.data(), std::ssize(sample));
    samples += sample;
  }
  if (batches.mask() != nullptr) samples += fmt::format("{:016x}", batches.mask()->digest());
  fingerprint.sampled_bin = digest_of(samples);
  if (batches.packed() != nullptr) fingerprint.packing = Digest{.low = packing_digest(*batches.packed())};
  return fingerprint;
}

std::string to_text(const DataFingerprint& fingerprint) {
  return fmt::format("{} bytes of tokens (digests {:.8} and {:.8}){}", fingerprint.bin_bytes, to_text(fingerprint.idx),
                     to_text(fingerprint.sampled_bin),
                     fingerprint.packing ? fmt::format(", packed ({:016x})", fingerprint.packing->low) : "");
}

}  // namespace echelon
