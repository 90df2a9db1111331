#include "data/loss_mask.h"

#include "base/error.h"
#include "files/file.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace echelon {
namespace {

constexpr std::string_view mask_magic = "ECHMASK1";

std::string mask_path(const std::string& prefix) { return prefix + ".mask"; }

}  // namespace

std::optional<LossMask> LossMask::of(const IndexedDataset& dataset) {
  const std::string path = mask_path(dataset.prefix());
  if (!has_target(path)) return std::nullopt;
  MappedFile file(path);
  const std::string_view bytes = file.bytes();
  require(bytes.size() >= header_bytes && bytes.starts_with(mask_magic), "{} is not a loss mask", path);
  std::uint64_t num_tokens = 0;
  std::memcpy(&num_tokens, bytes.data() + mask_magic.size(), sizeof(num_tokens));
  const auto expected = static_cast<std::uint64_t>(dataset.num_tokens());
  require(num_tokens == expected && bytes.size() - header_bytes == expected,
          "{} is of {} tokens, but {}.bin has {}; prepare the data again", path, bytes.size() - header_bytes,
          dataset.prefix(), expected);
  require(std::all_of(bytes.begin() + header_bytes, bytes.end(), [](char c) { return c == 0 || c == 1; }),
          "{} is damaged: a byte is neither 0 nor 1", path);
  return LossMask(std::move(file));
}

std::uint64_t LossMask::digest() const { return XXH3_64bits(file_.bytes().data(), file_.bytes().size()); }

LossMaskWriter::LossMaskWriter(const std::string& prefix) : file_(mask_path(prefix)) {
  file_.append(mask_magic.data(), mask_magic.size());
  file_.append(&num_tokens_, sizeof(num_tokens_));
}

void LossMaskWriter::add(std::span<const std::uint8_t> is_trained) {
  file_.append(is_trained.data(), is_trained.size());
  num_tokens_ += is_trained.size();
}

void LossMaskWriter::publish() {
  file_.overwrite(std::ssize(mask_magic), &num_tokens_, sizeof(num_tokens_));
  file_.publish();
}

void write_loss_mask(const std::string& prefix, const std::vector<std::uint8_t>& is_trained) {
  LossMaskWriter writer(prefix);
  writer.add(is_trained);
  writer.publish();
}

}  // namespace echelon
