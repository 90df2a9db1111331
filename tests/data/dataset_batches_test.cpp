#include "data/dataset_batches.h"

#include "base/error.h"
#include "data/permutation.h"
#include "scratch.h"
#include "tensor/tokens.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <thread>

namespace echelon {
namespace {

using testing::HasSubstr;
using Sequence = std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>;

// Tokens 1, 2, 3, ... n, in documents of a few tokens, so that a token identifies its position.
IndexedDataset counting(const Scratch& scratch, std::int32_t num_tokens) {
  IndexedDatasetWriter writer(scratch.path("a"), TokenType::i32);
  std::vector<std::int32_t> document;
  for (std::int32_t token = 1; token <= num_tokens; ++token) {
    document.push_back(token);
    if (token % 7 != 0 && token != num_tokens) continue;
    writer.add_document(document);
    document.clear();
  }
  writer.publish();
  return IndexedDataset(scratch.path("a"));
}

Sequence read(const BatchSource& batches, std::int64_t sequence, std::int64_t seq_len) {
  Sequence result;
  result.first.resize(static_cast<std::size_t>(seq_len));
  result.second.resize(static_cast<std::size_t>(seq_len));
  batches.read(sequence, seq_len, result.first.data(), result.second.data());
  return result;
}

TEST(Permutation, IsABijectionOfEverySize) {
  for (std::uint64_t size = 1; size < 300; ++size) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < size; ++i) seen.insert(permuted(i, size, 99));
    EXPECT_EQ(seen.size(), size);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
}

TEST(Permutation, SpreadsEveryIndexEvenlyOverKeys) {
  constexpr std::uint64_t size = 8;
  constexpr int keys = 8000;
  for (std::uint64_t i = 0; i < size; ++i) {
    std::vector<int> counts(size);
    for (int key = 0; key < keys; ++key) ++counts[permuted(i, size, mix(5, static_cast<std::uint64_t>(key)))];
    double chi_square = 0;  // 7 degrees of freedom: above 29.9 with probability 1e-4
    for (const int count : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_LT(chi_square, 29.9);
  }
}

// Documents of 1-7, 8-14, ... (token t is at t - 1 of the stream).
TEST(DatasetBatches, KnowWhereDocumentsBegin) {
  const Scratch scratch;
  const DatasetBatches batches(counting(scratch, 52), {.order = WindowOrder::in_order});
  for (const std::int64_t seq_len : {1, 5, 7, 10, 64})
    for (std::int64_t sequence = 0; sequence < 2 * batches.windows_per_epoch(seq_len); ++sequence) {
      const std::vector<std::int32_t> tokens = read(batches, sequence, seq_len).first;
      std::vector<std::int32_t> starts(tokens.size(), -1);
      batches.read_document_starts(sequence, seq_len, starts.data());
      for (std::size_t i = 0; i < tokens.size() && tokens[i] != 0; ++i) {
        const std::int32_t first_of_document = (tokens[i] - 1) / 7 * 7 + 1, first_of_window = tokens[0];
        EXPECT_EQ(starts[i], std::max(0, first_of_document - first_of_window))
            << "token " << tokens[i] << " of a window of " << seq_len;
      }
      EXPECT_TRUE(std::is_sorted(starts.begin(), starts.end()));
      EXPECT_TRUE(starts.front() == 0 && starts.back() < seq_len);
    }
}

// Attention to the padding of a long sequence would take the square of its length.
TEST(DatasetBatches, DividePaddingIntoShortDocuments) {
  const Scratch scratch;
  const DatasetBatches batches(counting(scratch, 11), {.order = WindowOrder::in_order});
  constexpr std::int64_t seq_len = 300, most = DatasetBatches::most_padding_together;
  std::vector<std::int32_t> starts(seq_len);
  batches.read_document_starts(0, seq_len, starts.data());
  EXPECT_EQ(starts[9], 7);
  for (std::int64_t i = 10; i < seq_len; ++i)
    EXPECT_EQ(starts[static_cast<std::size_t>(i)], 10 + (i - 10) / most * most) << i;
}

// A document without tokens starts where the next one does.
TEST(DatasetBatches, PassOverEmptyDocuments) {
  const Scratch scratch;
  IndexedDatasetWriter writer(scratch.path("a"), TokenType::i32);
  const std::vector<std::int32_t> two = {1, 2}, none;
  for (const auto& document : {none, two, none, none, two, none}) writer.add_document(document);
  writer.publish();
  std::vector<std::int32_t> starts(4);
  DatasetBatches(IndexedDataset(scratch.path("a")), {.order = WindowOrder::in_order})
      .read_document_starts(0, 4, starts.data());
  EXPECT_EQ(starts, (std::vector<std::int32_t>{0, 0, 2, 3})) << "the last token is a target alone, and padding follows";
}

TEST(DatasetBatches, PredictsEveryTokenOncePerEpoch) {
  const Scratch scratch;
  for (const std::int32_t num_tokens : {2, 3, 9, 50, 51, 52}) {
    const DatasetBatches batches(counting(scratch, num_tokens), {.seed = 3});
    for (const std::int64_t seq_len : {1, 5, 10, 64}) {
      const std::int64_t windows = batches.windows_per_epoch(seq_len);
      for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<std::int32_t> predicted;
        for (std::int64_t s = epoch * windows; s < (epoch + 1) * windows; ++s) {
          const auto [tokens, targets] = read(batches, s, seq_len);
          for (std::size_t t = 0; t < targets.size(); ++t) {
            if (targets[t] == ignored_target) {
              EXPECT_EQ(tokens[t], 0);
              continue;
            }
            EXPECT_EQ(targets[t], tokens[t] + 1);
            predicted.push_back(targets[t]);
          }
        }
        std::sort(predicted.begin(), predicted.end());
        ASSERT_EQ(predicted.size(), static_cast<std::size_t>(num_tokens - 1));
        for (std::int32_t i = 0; i < num_tokens - 1; ++i) EXPECT_EQ(predicted[static_cast<std::size_t>(i)], i + 2);
      }
    }
  }
}

TEST(DatasetBatches, OrderDependsOnSeedAndEpochAlone) {
  const Scratch scratch;
  const auto first_tokens = [&](std::int64_t seed, std::int64_t epoch) {
    const DatasetBatches batches(counting(scratch, 1001), {.seed = seed});
    std::vector<std::int32_t> firsts;
    for (std::int64_t s = 0; s < 100; ++s) firsts.push_back(read(batches, epoch * 100 + s, 10).first[0]);
    return firsts;
  };
  EXPECT_EQ(first_tokens(1, 0), first_tokens(1, 0));
  EXPECT_NE(first_tokens(1, 0), first_tokens(1, 1));
  EXPECT_NE(first_tokens(1, 0), first_tokens(2, 0));
  EXPECT_FALSE(std::ranges::is_sorted(first_tokens(1, 0)));
}

TEST(DatasetBatches, InOrderForValidation) {
  const Scratch scratch;
  const DatasetBatches batches(counting(scratch, 25), {.order = WindowOrder::in_order});
  EXPECT_EQ(read(batches, 0, 10).first[0], 1);
  EXPECT_EQ(read(batches, 1, 10).first[0], 11);
  EXPECT_EQ(read(batches, 2, 10).second,
            (std::vector<std::int32_t>{22, 23, 24, 25, -100, -100, -100, -100, -100, -100}));
  EXPECT_EQ(read(batches, 3, 10), read(batches, 0, 10));
}

TEST(DatasetBatches, ManyThreadsReadTheSame) {
  const Scratch scratch;
  const DatasetBatches batches(counting(scratch, 5000), {.seed = 4});
  std::vector<std::vector<Sequence>> seen(4);
  std::vector<std::thread> threads;
  for (auto& mine : seen)
    threads.emplace_back([&] {
      for (std::int64_t s = 0; s < 200; ++s) mine.push_back(read(batches, s, 33));
    });
  for (auto& thread : threads) thread.join();
  for (const auto& other : seen) EXPECT_EQ(other, seen[0]);
}

TEST(DatasetBatches, RefusesWhatCannotBePredicted) {
  const Scratch scratch;
  EXPECT_THAT(sentence_of([&] { DatasetBatches batches(counting(scratch, 0), {}); }), HasSubstr("holds 0 tokens"));
  EXPECT_THAT(sentence_of([&] { DatasetBatches batches(counting(scratch, 1), {}); }), HasSubstr("holds 1 token;"));
  const DatasetBatches batches(counting(scratch, 10), {.vocab_size = 10});
  EXPECT_THAT(sentence_of([&] { read(batches, 0, 9); }), HasSubstr("token 10, but model.vocab_size = 10"));
}

}  // namespace
}  // namespace echelon
