// A tokenizer whose tokens a model has no embedding for.
#include "data/tokenizer/embeddings.h"

#include "data/tokenizer/bpe_trainer.h"
#include "scratch.h"

#include <gmock/gmock.h>

#include <functional>

namespace echelon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// 256 bytes, a merge with id 256, and <|endoftext|> with id 257, which ends a document.
TokenizerSpec small_spec() {
  BpeTrainer trainer;
  trainer.add("abab abab abab");
  TokenizerSpec spec = trainer.train(258);
  EXPECT_EQ(spec.added.size(), 1U);
  return spec;
}

std::int32_t largest(const std::function<void(TokenizerSpec&)>& change) {
  TokenizerSpec spec = small_spec();
  change(spec);
  return largest_document_id(Tokenizer(spec));
}

TEST(Embeddings, AreNeededForWhatAnEncodedDocumentHas) {
  EXPECT_EQ(largest([](TokenizerSpec&) {}), 257) << "the end of a document";
  EXPECT_EQ(largest([](TokenizerSpec& spec) {
              spec.added.clear();
              spec.tokens.resize(257);
            }),
            256)
      << "the last merge";
  // Gemma 3's <image_soft_token> is such a token, and may be in the vocabulary of the model as well.
  const AddedToken image = {.id = 300, .content = "<image>", .is_special = true};
  EXPECT_EQ(largest([&](TokenizerSpec& spec) { spec.added.push_back(image); }), 257);
  EXPECT_EQ(largest([&](TokenizerSpec& spec) {
              spec.added.push_back(image);
              spec.tokens.resize(301);
              spec.tokens[300] = image.content;
            }),
            257);
  EXPECT_EQ(largest([&](TokenizerSpec& spec) {
              spec.added.push_back(image);
              spec.before_text = {300};
            }),
            300)
      << "the template adds it";
  EXPECT_EQ(
      largest([](TokenizerSpec& spec) { spec.added.push_back({.id = 299, .content = "    ", .is_special = false}); }),
      299)
      << "text has it";
}

TEST(Embeddings, TooFewAreRefusedWithTheTokenAndTheSizeThatIsEnough) {
  const Scratch scratch;
  const std::string file = scratch.path("tokenizer.json");
  Tokenizer(small_spec()).save(file);
  EXPECT_NO_THROW(require_embeddings(file, 258, "it", ""));
  EXPECT_NO_THROW(require_embeddings(file, 320, "it", "")) << "padded";
  EXPECT_THAT(sentence_of([&] { require_embeddings(file, 257, file, "use another"); }),
              AllOf(HasSubstr(file + " makes token 257 (<|endoftext|>)"),
                    HasSubstr("vocab_size is 257, not at least 258 (use another)")));
  EXPECT_THAT(sentence_of([&] { require_embeddings(file, 256, "it", ""); }), HasSubstr("token 257"));
  EXPECT_NO_THROW(require_embeddings(scratch.path("none.json"), 1, "it", ""));
  EXPECT_NO_THROW(require_embeddings(scratch.write("b/tokenizer.json", R"({"model":{"type":"WordPiece"}})"), 1, "", ""))
      << "is copied, no more";
}

}  // namespace
}  // namespace echelon
