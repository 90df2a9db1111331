#include "data/indexed_dataset.h"

#include "base/error.h"
#include "scratch.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <random>

namespace echelon {
namespace {

using testing::HasSubstr;

// The format, byte by byte: independent of the writer.
std::string little(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string index_bytes(int type, std::vector<int> lengths, std::vector<std::int64_t> pointers,
                        std::vector<std::int64_t> bounds) {
  std::string out("MMIDIDX\0\0", 9);
  out +=
      little(1, 8) + little(static_cast<std::uint64_t>(type), 1) + little(lengths.size(), 8) + little(bounds.size(), 8);
  for (const int n : lengths) out += little(static_cast<std::uint64_t>(n), 4);
  for (const std::int64_t p : pointers) out += little(static_cast<std::uint64_t>(p), 8);
  for (const std::int64_t b : bounds) out += little(static_cast<std::uint64_t>(b), 8);
  return out;
}

std::vector<std::int32_t> all_tokens(const IndexedDataset& dataset) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset.num_tokens()));
  dataset.read(0, tokens);
  return tokens;
}

TEST(IndexedDataset, ReadsHandMadeBytesOfEveryTokenType) {
  const Scratch scratch;
  for (const auto& [code, size] : std::vector<std::pair<int, int>>{{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}}) {
    std::string bin;
    for (const std::uint64_t token : {7u, 100u, 3u, 0u, 127u}) bin += little(token, size);
    scratch.write("a.bin", bin);
    scratch.write("a.idx", index_bytes(code, {2, 0, 3}, {0, 2 * size, 2 * size}, {0, 1, 3}));
    const IndexedDataset dataset(scratch.path("a"));
    EXPECT_EQ(all_tokens(dataset), (std::vector<std::int32_t>{7, 100, 3, 0, 127}));
    EXPECT_EQ(dataset.num_sequences(), 3);
    EXPECT_EQ(dataset.num_documents(), 2);
    EXPECT_EQ(dataset.document_start(1), 2);
    EXPECT_EQ(dataset.document_start(2), 5);
    std::vector<std::int32_t> middle(3);
    dataset.read(1, middle);
    EXPECT_EQ(middle, (std::vector<std::int32_t>{100, 3, 0}));
  }
}

TEST(IndexedDatasetWriter, WritesTheFormatsBytes) {
  const Scratch scratch;
  IndexedDatasetWriter writer(scratch.path("a"), TokenType::u16);
  writer.add_document(std::vector<std::int32_t>{1, 65535});
  writer.add_document(std::vector<std::int32_t>{});
  writer.add_document(std::vector<std::int32_t>{258});
  EXPECT_FALSE(std::filesystem::exists(scratch.path("a.bin")));
  writer.publish();
  EXPECT_EQ(scratch.read("a.bin"), std::string("\1\0\xff\xff\2\1", 6));
  EXPECT_EQ(scratch.read("a.idx"), index_bytes(8, {2, 0, 1}, {0, 4, 4}, {0, 1, 2, 3}));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("a.bin.partial")));
}

// As by processes that pack the same data at once.
TEST(DurableFile, IsWrittenByManyAtOnceAndLeavesNothingElse) {
  const Scratch scratch;
  scratch.write("a.partial", "what a killed process left");
  {
    DurableFile first(scratch.path("a")), second(scratch.path("a")), dropped(scratch.path("a"));
    first.append("first", 5);
    second.append("second", 6);
    second.publish();
    EXPECT_EQ(scratch.read("a"), "second");
    first.publish();
    EXPECT_EQ(scratch.read("a"), "first");
    write_durably(scratch.path("a"), "third");
  }
  EXPECT_EQ(scratch.read("a"), "third");
  EXPECT_EQ(list_folder(scratch.path("")), std::vector<std::string>{"a"});
}

TEST(IndexedDatasetWriter, ChoosesTheTokenTypeByVocabulary) {
  EXPECT_EQ(token_type_for(256), TokenType::u16);
  EXPECT_EQ(token_type_for(65536), TokenType::u16);
  EXPECT_EQ(token_type_for(65537), TokenType::i32);
  const Scratch scratch;
  IndexedDatasetWriter writer(scratch.path("a"), TokenType::u16);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{65536}), Error);
  EXPECT_THROW(writer.add_document(std::vector<std::int32_t>{-1}), Error);
}

TEST(IndexedDatasetWriter, FullDiskIsAFailureAndLeavesNoFinalName) {
  const Scratch scratch;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // writes beyond the limit then fail with EFBIG
  rlimit small = before;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  {
    IndexedDatasetWriter writer(scratch.path("a"), TokenType::u16);
    writer.add_document(std::vector<std::int32_t>(5000, 1));
    EXPECT_THROW(writer.publish(), Failure);
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path("")));
  EXPECT_THROW(IndexedDatasetWriter(scratch.path("no/such/folder/a"), TokenType::u16), Failure);
}

TEST(IndexedDataset, SaysWhatIsWrong) {
  const Scratch scratch;
  const std::string bin = little(1, 2) + little(2, 2);
  const auto complaint = [&](const std::string& idx) {
    scratch.write("a.bin", bin);
    scratch.write("a.idx", idx);
    return sentence_of([&] { IndexedDataset dataset(scratch.path("a")); });
  };
  const std::string good = index_bytes(8, {2}, {0}, {0, 1});
  EXPECT_THAT(complaint(""), HasSubstr("a.idx is not a token index"));
  EXPECT_THAT(complaint("X" + good.substr(1)), HasSubstr("a.idx is not a token index"));
  EXPECT_THAT(complaint(good.substr(0, good.size() - 1)),
              HasSubstr("but 1 sequences and 2 document bounds need another size"));
  EXPECT_THAT(complaint(good.substr(0, 9) + little(2, 8) + good.substr(17)), HasSubstr("version 2"));
  EXPECT_THAT(complaint(index_bytes(7, {2}, {0}, {0, 1})), HasSubstr("token type code 7"));
  EXPECT_THAT(complaint(index_bytes(8, {3}, {0}, {0, 1})), HasSubstr("a.bin has 4 bytes"));
  EXPECT_THAT(complaint(index_bytes(8, {-1}, {0}, {0, 1})), HasSubstr("sequence 0 has length -1"));
  EXPECT_THAT(complaint(index_bytes(8, {2}, {-2}, {0, 1})), HasSubstr("sequence 0 starts at byte -2"));
  EXPECT_THAT(complaint(index_bytes(8, {1}, {0}, {0, 1})), HasSubstr("describes 2"));
  for (const auto& [lengths, pointers] : std::vector<std::pair<std::vector<int>, std::vector<std::int64_t>>>{
           {{1, 1}, {0, 1}}, {{1, 1}, {0, 0}}, {{1, 1}, {0, 4}}})  // in a token, over another sequence, after a gap
    EXPECT_THAT(complaint(index_bytes(8, lengths, pointers, {0, 2})),
                HasSubstr(fmt::format("sequence 1 starts at byte {} of {}.bin, but those before it end at byte 2",
                                      pointers[1], scratch.path("a"))));
  EXPECT_THAT(complaint(index_bytes(8, {1, 1}, {2, 0}, {0, 2})), HasSubstr("but those before it end at byte 0"));
  EXPECT_THAT(complaint(index_bytes(8, {2}, {0}, {0, 2})), HasSubstr("document bound 1 is 2"));
  EXPECT_THAT(complaint(index_bytes(8, {2}, {0}, {})), HasSubstr("no document bounds"));
  EXPECT_THAT(complaint(index_bytes(8, {2}, {0}, {0})), HasSubstr("end at sequence 0 of 1"));
  EXPECT_THAT(sentence_of([&] { IndexedDataset dataset(scratch.path("missing")); }),
              HasSubstr("missing.bin: No such file"));
  std::filesystem::create_directory(scratch.path("folder.bin"));
  EXPECT_THAT(sentence_of([&] { IndexedDataset dataset(scratch.path("folder")); }), HasSubstr("not a regular file"));
}

TEST(IndexedDataset, NegativeAndWideTokensAreRefused) {
  const Scratch scratch;
  for (const std::uint64_t token : {~std::uint64_t{0}, std::uint64_t{1} << 31}) {
    scratch.write("a.bin", little(token, 8));
    scratch.write("a.idx", index_bytes(5, {1}, {0}, {0, 1}));
    const IndexedDataset dataset(scratch.path("a"));
    EXPECT_THAT(sentence_of([&] { all_tokens(dataset); }), HasSubstr("outside [0, 2^31)"));
  }
}

TEST(IndexedDataset, AFileThatShrinksWhileItIsReadIsASentence) {
  const Scratch scratch;
  scratch.write("a.bin", little(7, 4) + little(8, 4));
  scratch.write("a.idx", index_bytes(4, {2}, {0}, {0, 1}));
  const IndexedDataset dataset(scratch.path("a"));
  std::filesystem::resize_file(scratch.path("a.bin"), 4);
  EXPECT_THAT(sentence_of([&] { all_tokens(dataset); }), HasSubstr("a.bin is truncated at byte 4"));
}

TEST(IndexedDataset, MutatedIndexNeverCrashes) {
  const Scratch scratch;
  const std::string good = index_bytes(8, {2, 3, 1}, {0, 4, 10}, {0, 1, 3});
  scratch.write("a.bin", std::string(12, '\1'));
  std::mt19937 random(1);
  int accepted = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::string bad = good;
    for (int edit = 0; edit < 1 + trial % 3; ++edit) bad[random() % bad.size()] = static_cast<char>(random());
    if (trial % 5 == 0) bad.resize(random() % (bad.size() + 1));
    scratch.write("a.idx", bad);
    try {
      const IndexedDataset dataset(scratch.path("a"));
      all_tokens(dataset);
      for (std::int64_t d = 0; d <= dataset.num_documents(); ++d)
        EXPECT_LE(dataset.document_start(d), dataset.num_tokens());
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_LT(accepted, 100);
}

TEST(IndexedDataset, TokensBeyondAVocabularyAreNamed) {
  const Scratch scratch;
  IndexedDatasetWriter writer(scratch.path("d"), TokenType::u16);
  std::vector<std::int32_t> tokens(100'000, 7);
  tokens.back() = 1259;
  writer.add_document(tokens);
  writer.publish();
  const IndexedDataset dataset(scratch.path("d"));
  EXPECT_NO_THROW(require_tokens_below(1260, dataset, 100'000));
  EXPECT_NO_THROW(require_tokens_below(100, dataset, 99'999));
  EXPECT_THAT([&] { require_tokens_below(100, dataset, 100'000); },
              testing::ThrowsMessage<Error>(HasSubstr("holds token 1259, but model.vocab_size = 100")));
}

TEST(UnigramEntropy, IsTheClosedForm) {
  const Scratch scratch;
  IndexedDatasetWriter writer(scratch.path("a"), TokenType::u16);
  writer.add_document(std::vector<std::int32_t>{1, 1, 2});
  writer.add_document(std::vector<std::int32_t>{3});
  writer.publish();
  EXPECT_NEAR(unigram_entropy(IndexedDataset(scratch.path("a"))), 1.5 * std::log(2.0), 1e-12);  // 1/2, 1/4, 1/4
}

}  // namespace
}  // namespace echelon
