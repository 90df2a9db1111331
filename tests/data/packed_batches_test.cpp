#include "data/dataset_batches.h"

#include "base/error.h"
#include "data/packing/packing_file.h"
#include "scratch.h"
#include "tensor/tokens.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace echelon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Token 1000 d + i is the i-th of document d. Lengths go from 0 to 22.
constexpr std::int32_t num_documents = 60;
std::int32_t length_of(std::int32_t document) { return document * 7 % 23; }

void write_documents(const Scratch& scratch, std::int32_t count = num_documents) {
  IndexedDatasetWriter writer(scratch.path("a"), TokenType::i32);
  for (std::int32_t d = 0; d < count; ++d) {
    std::vector<std::int32_t> document;
    for (std::int32_t i = 0; i < length_of(d); ++i) document.push_back(1000 * d + i);
    writer.add_document(document);
  }
  writer.publish();
}

DatasetBatches packed_batches(const Scratch& scratch, std::int64_t seq_len, BatchOrder order) {
  IndexedDataset dataset(scratch.path("a"));
  PackedSequences packed = open_packing(dataset, seq_len, order.seed).packed;
  return {std::move(dataset), order, std::move(packed)};
}

struct Row {
  std::vector<std::int32_t> tokens, targets, starts;
};

Row read(const DatasetBatches& batches, std::int64_t sequence, std::int64_t seq_len) {
  const auto size = static_cast<std::size_t>(seq_len);
  Row row = {std::vector<std::int32_t>(size), std::vector<std::int32_t>(size), std::vector<std::int32_t>(size)};
  batches.read(sequence, seq_len, row.tokens.data(), row.targets.data());
  batches.read_document_starts(sequence, seq_len, row.starts.data());
  return row;
}

/// Checks tokens, targets and starts of a row by what the tokens say; returns the tokens without padding.
std::vector<std::int32_t> expect_row(const Row& row, bool masks_ends) {
  const std::size_t T = row.tokens.size();
  std::size_t present = T, start = 0;
  // Token 0 is the first of document 0, which is empty.
  while (present > 0 && row.tokens[present - 1] == 0) --present;
  for (std::size_t i = 0; i < T; ++i) {
    const std::int32_t token = row.tokens[i], document = token / 1000;
    const bool starts_padding = i >= present && (i - present) % DatasetBatches::most_padding_together == 0;
    if (i == 0 || starts_padding || (i < present && token != row.tokens[i - 1] + 1)) start = i;
    EXPECT_EQ(row.starts[i], static_cast<std::int32_t>(start)) << "at " << i;
    std::int32_t expected = token + 1;
    if (i >= present)
      expected = ignored_target;
    else if (token % 1000 == length_of(document) - 1)
      expected = masks_ends || i + 1 >= present ? ignored_target : row.tokens[i + 1];
    EXPECT_EQ(row.targets[i], expected) << "at " << i << " of token " << token;
  }
  return {row.tokens.begin(), row.tokens.begin() + static_cast<std::ptrdiff_t>(present)};
}

TEST(PackedBatches, HaveEveryTokenOncePerEpochWithItsTarget) {
  const Scratch scratch;
  write_documents(scratch);
  for (const std::int64_t seq_len : {5, 16, 40, 1000})
    for (const bool masks_ends : {false, true}) {
      const DatasetBatches batches = packed_batches(scratch, seq_len, {.seed = 3, .eod_mask_loss = masks_ends});
      const std::int64_t windows = batches.windows_per_epoch(seq_len);
      for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        std::multiset<std::int32_t> seen;
        for (std::int64_t s = epoch * windows; s < (epoch + 1) * windows; ++s) {
          const auto tokens = expect_row(read(batches, s, seq_len), masks_ends);
          seen.insert(tokens.begin(), tokens.end());
        }
        std::multiset<std::int32_t> expected;
        for (std::int32_t d = 0; d < num_documents; ++d)
          for (std::int32_t i = 0; i < length_of(d); ++i) expected.insert(1000 * d + i);
        EXPECT_EQ(seen, expected);
      }
    }
}

// The i-th token of a document is at position i of its first piece; windows start anew.
TEST(PackedBatches, CountPositionsFromTheStartOfTheDocument) {
  const Scratch scratch;
  write_documents(scratch);
  std::vector<std::int32_t> positions(32);
  const DatasetBatches packed = packed_batches(scratch, 32, {.seed = 3});
  for (std::int64_t s = 0; s < packed.windows_per_epoch(32); ++s) {
    const Row row = read(packed, s, 32);
    packed.read_positions(s, 32, positions.data());
    for (std::size_t i = 0; i < 32 && row.tokens[i] != 0; ++i) EXPECT_EQ(positions[i], row.tokens[i] % 1000);
  }
  const DatasetBatches stream(IndexedDataset(scratch.path("a")), {.order = WindowOrder::in_order});
  // Documents of 7, 14 and 21 tokens: the second ends with token 20 of the stream, the first of the third window.
  stream.read_positions(1, 10, positions.data());
  EXPECT_THAT(std::vector(positions.begin(), positions.begin() + 10), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  stream.read_positions(2, 10, positions.data());
  EXPECT_THAT(std::vector(positions.begin(), positions.begin() + 10), ElementsAre(0, 0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(PackedBatches, AreInAnotherOrderInEachEpoch) {
  const Scratch scratch;
  write_documents(scratch);
  const DatasetBatches batches = packed_batches(scratch, 16, {.seed = 3});
  const std::int64_t windows = batches.windows_per_epoch(16);
  std::vector<std::vector<std::int32_t>> first, second;
  for (std::int64_t s = 0; s < windows; ++s) {
    first.push_back(read(batches, s, 16).tokens);
    second.push_back(read(batches, windows + s, 16).tokens);
  }
  EXPECT_NE(first, second);
  EXPECT_THAT(second, testing::UnorderedElementsAreArray(first));
  EXPECT_THAT(sentence_of([&] { (void)batches.windows_per_epoch(8); }), HasSubstr("packed for training.seq_len = 16"));
}

// Windows of the stream: documents of 7, 14, 21, 5, 12 ... tokens; document 0 is empty.
TEST(PackedBatches, OfAStreamMaskTheEndsOfDocumentsToo) {
  const Scratch scratch;
  write_documents(scratch);
  const DatasetBatches batches(IndexedDataset(scratch.path("a")),
                               {.order = WindowOrder::in_order, .eod_mask_loss = true});
  for (const std::int64_t seq_len : {1, 7, 10, 64})
    for (std::int64_t s = 0; s < batches.windows_per_epoch(seq_len); ++s) {
      const Row row = read(batches, s, seq_len);
      for (std::size_t i = 0; i < row.tokens.size() && row.tokens[i] != 0; ++i) {
        const bool is_last = row.tokens[i] % 1000 == length_of(row.tokens[i] / 1000) - 1;
        EXPECT_EQ(row.targets[i], is_last ? ignored_target : row.tokens[i] + 1) << "of token " << row.tokens[i];
      }
    }
}

TEST(PackedBatches, AreStoredNextToTheDataAndMadeAnewWhenItChanges) {
  const Scratch scratch;
  write_documents(scratch);
  const std::string path = packing_path(scratch.path("a"), 16, 3);
  const auto open = [&](std::int64_t seed = 3) {
    const IndexedDataset dataset(scratch.path("a"));
    OpenedPacking opened = open_packing(dataset, 16, seed);
    if (!opened.was_stored && opened.fault.empty()) store_packing(dataset, opened.packed, seed);
    return opened;
  };
  const OpenedPacking made = open(), stored = open();
  EXPECT_FALSE(made.was_stored);
  EXPECT_TRUE(stored.was_stored);
  EXPECT_EQ(stored.packed, made.packed);
  EXPECT_FALSE(open(4).was_stored);
  EXPECT_NE(packing_digest(open(4).packed), packing_digest(made.packed));

  write_documents(scratch, num_documents - 1);
  const OpenedPacking changed = open();
  EXPECT_FALSE(changed.was_stored);
  EXPECT_LT(changed.packed.num_tokens, made.packed.num_tokens);
  EXPECT_TRUE(open().was_stored) << "its file was replaced";

  // One bit, and the last byte.
  const std::string bytes = scratch.read(std::filesystem::path(path).filename().string());
  for (const std::size_t at : {std::size_t{9}, std::size_t{40}, bytes.size() - 2}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    scratch.write(std::filesystem::path(path).filename().string(), damaged);
    EXPECT_FALSE(open_packing(IndexedDataset(scratch.path("a")), 16, 3).was_stored) << "byte " << at;
  }
  scratch.write(std::filesystem::path(path).filename().string(), bytes.substr(0, bytes.size() - 1));
  EXPECT_FALSE(open().was_stored);
  EXPECT_EQ(open().packed, changed.packed);

  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  const OpenedPacking unread = open();
  EXPECT_THAT(unread.fault, HasSubstr(path + " is not a regular file"));
  EXPECT_EQ(unread.packed, changed.packed);
}

// With the token as its own address, a target is trained if its index in the document is odd.
TEST(PackedBatches, AMaskLeavesTheSameTargetsWithAndWithoutPacking) {
  const Scratch scratch;
  write_documents(scratch);
  std::vector<std::uint8_t> is_trained;
  std::int64_t num_trained = 0;
  for (std::int32_t d = 0; d < num_documents; ++d)
    for (std::int32_t i = 0; i < length_of(d); ++i, num_trained += is_trained.back())
      is_trained.push_back(static_cast<std::uint8_t>(i % 2));
  write_loss_mask(scratch.path("a"), is_trained);
  const DatasetBatches stream(IndexedDataset(scratch.path("a")), {.seed = 1});
  const DatasetBatches packed = packed_batches(scratch, 16, {.seed = 1});
  for (const DatasetBatches* batches : {&stream, &packed}) {
    EXPECT_EQ(batches->num_targets(), num_trained);
    std::multiset<std::int32_t> targets;
    for (std::int64_t s = 0; s < batches->windows_per_epoch(16); ++s)
      for (const std::int32_t target : read(*batches, s, 16).targets)
        if (target != ignored_target) targets.insert(target);
    EXPECT_EQ(std::ssize(targets), num_trained);
    EXPECT_EQ(std::set<std::int32_t>(targets.begin(), targets.end()).size(), targets.size());
    for (const std::int32_t target : targets) EXPECT_EQ(target % 1000 % 2, 1);
  }
  is_trained.pop_back();
  write_loss_mask(scratch.path("a"), is_trained);
  EXPECT_THAT(sentence_of([&] { DatasetBatches(IndexedDataset(scratch.path("a")), {}); }),
              HasSubstr("prepare the data again"));
}

}  // namespace
}  // namespace echelon
