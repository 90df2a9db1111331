#include "data/prepare.h"

#include "base/error.h"
#include "data/indexed_dataset.h"
#include "data/text_field.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/tokenizer.h"
#include "scratch.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace echelon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::string_view separator = "<|endoftext|>";

/// The documents of a split as text, read back through its files and their tokenizer.
std::vector<std::string> documents(const std::string& output, const std::string& split) {
  const Tokenizer tokenizer = Tokenizer::load(output + "/tokenizer.json");
  const IndexedDataset dataset(output + "/" + split);
  std::vector<std::string> texts;
  for (std::int64_t d = 0; d < dataset.num_documents(); ++d) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(dataset.document_start(d + 1) - dataset.document_start(d)));
    dataset.read(dataset.document_start(d), ids);
    texts.push_back(tokenizer.decode(ids));
  }
  return texts;
}

std::string ended(std::string text) { return text.append(separator); }

PrepareOptions options_for(const Scratch& scratch, std::vector<std::string> inputs, double validation_fraction = 0) {
  PrepareOptions options;
  options.corpus.inputs = std::move(inputs);
  options.corpus.validation_fraction = validation_fraction;
  options.output = scratch.path("out");
  options.vocab_size = 300;
  return options;
}

TEST(Prepare, EveryDocumentIsInOneSplitByteForByte) {
  const Scratch scratch;
  std::multiset<std::string> expected;
  for (int i = 0; i < 200; ++i) {
    const std::string text = "file " + std::to_string(i) + " says hello hello \xff\n";
    scratch.write("in/" + std::to_string(i % 7) + "/" + std::to_string(i) + ".txt", text);
    expected.insert(ended(text));
  }
  const PrepareResult result = prepare(options_for(scratch, {scratch.path("in")}, 0.2));
  const auto train = documents(scratch.path("out"), "train");
  const auto validation = documents(scratch.path("out"), "validation");
  std::multiset<std::string> found(train.begin(), train.end());
  found.insert(validation.begin(), validation.end());
  EXPECT_EQ(found, expected);
  EXPECT_GT(validation.size(), 15u);  // 40 are expected, with a deviation of 6
  EXPECT_LT(validation.size(), 65u);
  EXPECT_EQ(result.validation.num_documents, static_cast<std::int64_t>(validation.size()));
  EXPECT_EQ(result.num_files, 200);
  EXPECT_EQ(result.train.num_tokens, IndexedDataset(scratch.path("out/train")).num_tokens());
  EXPECT_DOUBLE_EQ(result.validation_entropy, unigram_entropy(IndexedDataset(scratch.path("out/validation"))));
}

TEST(Prepare, TheOutcomeDependsOnNamesAndContentsAlone) {
  const Scratch one, two;
  for (const Scratch* scratch : {&one, &two}) {
    for (int i = 0; i < 60; ++i)
      scratch->write("in/" + std::to_string(scratch == &one ? i : 59 - i),
                     "text " + std::to_string(scratch == &one ? i : 59 - i));
    prepare(options_for(*scratch, {scratch->path("in")}, 0.2));
  }
  for (const char* file :
       {"out/train.bin", "out/train.idx", "out/validation.bin", "out/validation.idx", "out/tokenizer.json"}) {
    EXPECT_EQ(one.read(file), two.read(file)) << file;
  }
}

TEST(Prepare, GlobsChooseAmongTheFilesOfFolders) {
  const Scratch scratch;
  for (const char* name : {"in/a.h", "in/b.hpp", "in/vector", "in/c.cpp", "in/.hidden/d.h", "in/sub/e.h"})
    scratch.write(name, std::string(name) + " " + name);
  PrepareOptions options = options_for(scratch, {scratch.path("in")});
  options.corpus.globs = {"*.h", "*."};
  prepare(options);
  EXPECT_THAT(documents(options.output, "train"),
              ElementsAre(ended("in/a.h in/a.h"), ended("in/sub/e.h in/sub/e.h"), ended("in/vector in/vector")));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("out/validation.bin")));
  // A named file needs no match, and counts once.
  options.corpus.inputs = {scratch.path("in/*.cpp"), scratch.path("in/c.cpp")};
  prepare(options);
  EXPECT_THAT(documents(options.output, "train"), ElementsAre(ended("in/c.cpp in/c.cpp")));
}

TEST(Prepare, RefusesTokensThatTheModelOfTheTokenizerLacks) {
  const Scratch scratch;
  scratch.write("in/a.txt", "hello hello, hello");
  PrepareOptions options = options_for(scratch, {scratch.path("in")});
  options.vocab_size = 260;
  prepare(options);  // the separator is token 259
  scratch.write("model/tokenizer.json", scratch.read("out/tokenizer.json"));
  options.tokenizer = scratch.path("model/tokenizer.json");
  options.output = scratch.path("tokens");
  const auto with_config = [&](const std::string& config) { scratch.write("model/config.json", config); };
  const std::string said = "model/tokenizer.json: the text has token 259 (<|endoftext|>), but vocab_size = 259 in the";
  for (const char* config : {R"({"vocab_size": 259})", R"({"text_config": {"vocab_size": 259}})"}) {
    with_config(config);
    EXPECT_THAT(sentence_of([&] { prepare(options); }), HasSubstr(said));
    EXPECT_FALSE(std::filesystem::exists(options.output));
  }
  with_config("{");
  EXPECT_THAT(sentence_of([&] { prepare(options); }), HasSubstr("model/config.json: not valid JSON at column 2"));
  options.appends_end_of_document = false;  // a token that the text does not have is no matter
  with_config(R"({"vocab_size": 259})");
  prepare(options);
  options.appends_end_of_document = true;
  for (const char* config : {R"({"vocab_size": 260})", R"({"text_config": null})"}) {
    with_config(config);
    std::filesystem::remove_all(options.output);
    prepare(options);
  }
}

TEST(Prepare, ReadsLinesOfJson) {
  const Scratch scratch;
  scratch.write("a.jsonl",
                "{\"text\": \"one\\ntwo \\u00e4\"}\n\n{\"id\": 1, \"text\": \"\"}\r\n{\"text\": \"a<|endoftext|>b\"}");
  const PrepareOptions options = options_for(scratch, {scratch.path("a.jsonl")});
  prepare(options);
  EXPECT_THAT(documents(options.output, "train"), ElementsAre(ended("one\ntwo ä"), ended("a<|endoftext|>b")));
  scratch.write("a.jsonl", "{\"text\": \"one\"}\n{\"content\": \"two\"}\n");
  EXPECT_THAT(sentence_of([&] { prepare(options); }),
              HasSubstr("a.jsonl:2: no text under \"text\" (prepare --text-key)"));
  scratch.write("a.jsonl", "{\"text\": \"one\"}\n[1]\n");
  EXPECT_THAT(sentence_of([&] { prepare(options); }),
              HasSubstr("a.jsonl:2: not a JSON object with a text under \"text\" (prepare --text-key)"));
  scratch.write("a.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"tw\xc3\n");
  EXPECT_THAT(sentence_of([&] { prepare(options); }),
              HasSubstr("a.jsonl:3: not valid JSON at column 14, after '{\"text\": \"tw\\xc3': invalid "
                        "string: ill-formed UTF-8 byte"));
}

TEST(TextField, IsTheLastStringUnderItsKey) {
  EXPECT_EQ(read_text_field(R"({"a": {"text": "no"}, "text": "yes", "b": ["text", "no"]})", "text"), "yes");
  EXPECT_EQ(read_text_field(R"({"text": 1, "text": "yes"})", "text"), "yes");
  const auto complaint = [](const std::string& line) {
    return sentence_of([&] { (void)read_text_field(line, "text"); });
  };
  for (const char* other : {"1", "-1", "0.5", "null", "true", "[\"no\"]", "{\"text\": \"no\"}"})
    EXPECT_THAT(complaint(fmt::format(R"({{"text": "yes", "text": {}}})", other)), HasSubstr("no text under \"text\""));
  EXPECT_THAT(complaint(R"({"id": "1", "txt": "yes"})"), HasSubstr("did you mean \"txt\"?"));
  EXPECT_THAT(complaint("\"text\""), HasSubstr("not a JSON object"));
  EXPECT_THAT(complaint(R"([{"text": "no"}])"), HasSubstr("not a JSON object"));
  EXPECT_THAT(complaint(R"({"text": "yes"} {})"), HasSubstr("not valid JSON at column 17"));
}

// The end of a single document is for validation, as for a text.
TEST(Prepare, ReadsAFileOfOneLineOfJson) {
  const Scratch scratch;
  scratch.write("in.jsonl", R"({"text": "<|endoftext|> one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"})"
                            "\n\n");
  const PrepareResult result = prepare(options_for(scratch, {scratch.path("in.jsonl")}, 0.2));
  EXPECT_EQ(result.train.num_documents, 1);
  EXPECT_EQ(result.validation.num_documents, 1);
  EXPECT_THAT(documents(scratch.path("out"), "train"), ElementsAre(testing::StartsWith("<|endoftext|> one\ntwo\n")));
  EXPECT_THAT(documents(scratch.path("out"), "validation"), ElementsAre(testing::HasSubstr("nine\nten\n")));
}

TEST(Prepare, ALineOfJsonMayBeLongerThanTheSampleOfTheTokenizer) {
  const Scratch scratch;
  std::string lines;
  for (const char letter : {'a', 'b', 'c'}) lines += R"({"text": ")" + std::string(5000, letter) + "\"}\n";
  scratch.write("in.jsonl", lines);
  PrepareOptions options = options_for(scratch, {scratch.path("in.jsonl")});
  options.training_sample_bytes = 1000;
  EXPECT_EQ(prepare(options).train.num_documents, 3);
}

TEST(Prepare, FewFilesAreSplitByDocuments) {
  const Scratch scratch;
  std::string lines, texts;
  for (int i = 0; i < 300; ++i) {
    lines += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
    texts += (i == 0 ? "" : std::string(separator)) + "text " + std::to_string(i);
  }
  for (const auto& [name, content] : std::map<std::string, std::string>{{"a.jsonl", lines}, {"b.txt", texts}}) {
    const PrepareResult result = prepare(options_for(scratch, {scratch.write(name, content)}, 0.1));
    EXPECT_EQ(result.train.num_documents + result.validation.num_documents, 300);
    EXPECT_GT(result.validation.num_documents, 10);  // 30 are expected, with a deviation of 5
    EXPECT_LT(result.validation.num_documents, 55);
  }
}

TEST(Prepare, OneTextIsCutAtALine) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(100 + i) + "\n";  // nine bytes each
  prepare(options_for(scratch, {scratch.write("a.txt", text)}, 0.1));
  EXPECT_THAT(documents(scratch.path("out"), "train"), ElementsAre(ended(text.substr(0, 810))));
  EXPECT_THAT(documents(scratch.path("out"), "validation"), ElementsAre(ended(text.substr(810))));
}

TEST(Prepare, MaxBytesBoundsTheText) {
  const Scratch scratch;
  for (int i = 0; i < 50; ++i) scratch.write("in/" + std::to_string(i), std::string(99, 'a') + "\n");
  PrepareOptions options = options_for(scratch, {scratch.path("in")});
  options.corpus.max_bytes = 1000;
  EXPECT_EQ(prepare(options).train.num_bytes, 1000);
  options.corpus.max_bytes = 5;  // in the middle of a line: no better place exists
  EXPECT_EQ(prepare(options).train.num_bytes, 5);
}

TEST(Prepare, TheOutputMayLieInTheInput) {
  const Scratch scratch;
  scratch.write("a.txt", "hello");
  const PrepareOptions options = options_for(scratch, {scratch.path("")});
  prepare(options);
  EXPECT_TRUE(prepare(options).is_reused);
  EXPECT_THAT(documents(options.output, "train"), ElementsAre(ended("hello")));
}

// Otherwise tokenizer.json and prepare.json would be input the second time.
TEST(Prepare, TheInputMayNotLieInTheOutput) {
  const Scratch scratch;
  scratch.write("in/a.txt", "a text\n");
  for (const std::string input : {"in", "in/a.txt"}) {
    PrepareOptions options = options_for(scratch, {scratch.path(input)});
    options.output = scratch.path("in") + "/";
    EXPECT_THAT(sentence_of([&] { prepare(options); }),
                HasSubstr("did you mean --output=" + scratch.path("in/corpus")));
  }
}

TEST(Prepare, SkipsWhatIsNoText) {
  const Scratch scratch;
  scratch.write("in/a", "text text");
  scratch.write("in/b", std::string_view("\x7f"
                                         "ELF\0\0\0",
                                         7));
  scratch.write("in/c", "");
  const PrepareResult result = prepare(options_for(scratch, {scratch.path("in")}));
  EXPECT_EQ(result.num_skipped_files, 1);
  EXPECT_EQ(result.train.num_documents, 1);
}

TEST(Prepare, DoesNothingTwice) {
  const Scratch scratch;
  scratch.write("in/a", "hello hello world");
  PrepareOptions options = options_for(scratch, {scratch.path("in")});
  EXPECT_FALSE(prepare(options).is_reused);
  const PrepareResult again = prepare(options);
  EXPECT_TRUE(again.is_reused);
  EXPECT_EQ(again.train.num_tokens, IndexedDataset(scratch.path("out/train")).num_tokens());
  EXPECT_EQ(again.vocab_size, Tokenizer::load(scratch.path("out/tokenizer.json")).vocab_size());

  options.vocab_size = 260;
  EXPECT_FALSE(prepare(options).is_reused);
  options.min_frequency = 3;  // no pair occurs so often
  EXPECT_EQ(prepare(options).vocab_size, 257);
  scratch.write("in/b", "more");
  EXPECT_FALSE(prepare(options).is_reused);
  std::filesystem::resize_file(scratch.path("out/train.bin"), 2);
  EXPECT_FALSE(prepare(options).is_reused);
  scratch.write("out/prepare.json", "{\"request\": 7");
  EXPECT_FALSE(prepare(options).is_reused);
  EXPECT_TRUE(prepare(options).is_reused);
}

TEST(Prepare, OnlyOneAtATimeWritesToAFolder) {
  const Scratch scratch;
  scratch.write("one/a", "hello hello world");
  scratch.write("two/a", "another, another text");
  const PrepareOptions one = options_for(scratch, {scratch.path("one")}),
                       two = options_for(scratch, {scratch.path("two")});
  std::set<std::string> refusals;
  const auto meanwhile = [&](PrepareStage, std::int64_t, std::int64_t) {
    refusals.insert(sentence_of([&] { prepare(two); }));
  };
  prepare(one, meanwhile);
  EXPECT_THAT(refusals,
              ElementsAre(HasSubstr(fmt::format("--output={} has a preparation that is not over: process {} on ",
                                                one.output, ::getpid()))));
  EXPECT_THAT(documents(one.output, "train"), ElementsAre(ended("hello hello world")));
  EXPECT_TRUE(prepare(one).is_reused);
  EXPECT_FALSE(std::filesystem::exists(one.output + "/prepare.lock"));
  prepare(two);
}

TEST(Prepare, UsesATokenizerThatIsGiven) {
  const Scratch scratch;
  scratch.write("in/a", "hello hello world");
  prepare(options_for(scratch, {scratch.path("in")}));
  const std::string file = scratch.read("out/tokenizer.json") + "\n  ";
  PrepareOptions options = options_for(scratch, {scratch.path("in")});
  options.output = scratch.path("second");
  options.tokenizer = scratch.write("given.json", file);
  prepare(options);
  EXPECT_EQ(scratch.read("second/tokenizer.json"), file);
  EXPECT_EQ(scratch.read("second/train.bin"), scratch.read("out/train.bin"));
  scratch.write("given.json", "{}");
  EXPECT_THAT(sentence_of([&] { prepare(options); }), HasSubstr("given.json: tokenizer has no model"));
}

TEST(Prepare, ControlTokensAreTextUnlessAskedFor) {
  const Scratch scratch;
  scratch.write("in/a.jsonl", "{\"text\":\"hello <|endoftext|> world\"}\n{\"text\":\"hello\"}\n");
  PrepareOptions options = options_for(scratch, {scratch.path("in")});
  options.corpus.validation_fraction = 0;
  EXPECT_EQ(prepare(options).num_control_as_text, 1);
  const auto count = [&](const std::string& output) {
    const Tokenizer tokenizer = Tokenizer::load(output + "/tokenizer.json");
    const IndexedDataset train(output + "/train");
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(train.num_tokens()));
    train.read(0, tokens);
    return std::count(tokens.begin(), tokens.end(), *tokenizer.end_of_document());
  };
  EXPECT_EQ(count(options.output), 2);  // the separators
  options.parses_special = true;
  EXPECT_EQ(prepare(options).num_control_as_text, 0);
  EXPECT_EQ(count(options.output), 3);
}

TEST(Prepare, UsesAVocabularyWithItsMerges) {
  const Scratch scratch;
  scratch.write("in/a", "aaab");
  nlohmann::json vocab = {{"<end>", 258}, {"aa", 256}, {"ab", 257}};
  for (int byte = 0; byte < 256; ++byte) vocab[to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  scratch.write("given/vocab.json", vocab.dump());
  scratch.write("given/merges.txt", "a a\n");
  scratch.write("given/tokenizer_config.json", R"({"eos_token":"<end>"})");
  PrepareOptions options = options_for(scratch, {scratch.path("in")});
  options.corpus.validation_fraction = 0;
  options.tokenizer = scratch.path("given/vocab.json");
  options.appends_end_of_document = false;
  const auto tokens = [&] {
    prepare(options);
    const IndexedDataset train(options.output + "/train");
    std::vector<std::int32_t> ids(static_cast<std::size_t>(train.num_tokens()));
    train.read(0, ids);
    return ids;
  };
  EXPECT_THAT(tokens(), ElementsAre(256, 'a', 'b'));
  EXPECT_EQ(scratch.read("out/tokenizer_config.json"), scratch.read("given/tokenizer_config.json"));
  scratch.write("given/merges.txt", "a b\n");  // with the same vocabulary
  EXPECT_THAT(tokens(), ElementsAre('a', 'a', 257));
  options.tokenizer = "";  // what is learned has no files next to it
  EXPECT_FALSE(tokens().empty());
  EXPECT_EQ(scratch.read("out/tokenizer_config.json"), "");
}

TEST(Prepare, ThreadsChangeNoToken) {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += fmt::format("{{\"text\":\"document {} of {}\"}}\n", i, i * i);
  scratch.write("in/a.jsonl", lines);
  PrepareOptions options = options_for(scratch, {scratch.path("in")});
  options.num_threads = 1;
  prepare(options);
  const std::string one = scratch.read("out/train.bin");
  options.num_threads = 4;
  options.output = scratch.path("four");
  prepare(options);
  EXPECT_EQ(scratch.read("four/train.bin"), one);
}

TEST(Prepare, ARefusalLeavesNoEmptyFolder) {
  const Scratch scratch;
  PrepareOptions options = options_for(scratch, {scratch.write("one.jsonl", R"({"text": "a"})")}, 1e-9);
  options.output = scratch.path("new/inner/");
  EXPECT_THAT([&] { (void)prepare(options); },
              ThrowsMessage<Error>(HasSubstr("leaves no document of 1 for validation")));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("new")));
  const std::string kept = scratch.write("old/note.txt", "kept");
  options.output = scratch.path("old/inner");
  EXPECT_THROW((void)prepare(options), Error);
  EXPECT_FALSE(std::filesystem::exists(options.output));
  EXPECT_TRUE(std::filesystem::exists(kept));
}

TEST(Prepare, ReadsTextThatStartsAsACompressedFile) {
  const Scratch scratch;
  PrepareOptions options = options_for(scratch, {scratch.write("text", "BZh is how files of bzip2 start")});
  options.corpus.validation_fraction = 0;
  EXPECT_GT(prepare(options).train.num_tokens, 0);
}

TEST(Prepare, SaysWhatIsWrong) {
  const Scratch scratch;
  scratch.write("in/a", "text");
  std::filesystem::create_directory(scratch.path("empty"));
  const auto complaint = [&](const auto& change) {
    PrepareOptions options = options_for(scratch, {scratch.path("in")});
    change(options);
    return sentence_of([&] { prepare(options); });
  };
  EXPECT_THAT(complaint([](auto& o) { o.corpus.inputs = {}; }), HasSubstr("prepare --input is missing"));
  EXPECT_THAT(complaint([](auto& o) { o.output = ""; }), HasSubstr("prepare --output is missing"));
  EXPECT_THAT(complaint([](auto& o) { o.corpus.inputs = {"/no/such/file"}; }),
              HasSubstr("prepare --input=/no/such/file: there is no such file or folder"));
  EXPECT_THAT(complaint([&](auto& o) { o.corpus.inputs = {scratch.path("empty")}; }), HasSubstr("there is no text"));
  EXPECT_THAT(complaint([&](auto& o) { o.corpus.inputs = {scratch.write("packed", "\x1f\x8b\x08 packed")}; }),
              HasSubstr("packed is compressed: decompress it first, with gzip -dk"));
  EXPECT_THAT(complaint([&](auto& o) { o.corpus.inputs = {scratch.write("packed", "BZh91AY&SY packed")}; }),
              HasSubstr("packed is compressed: decompress it first, with bzip2 -dk"));
  EXPECT_THAT(complaint([&](auto& o) { o.corpus.globs = {"*.rs"}; }),
              HasSubstr("there is no text in files named *.rs"));
  EXPECT_THAT(complaint([](auto& o) { o.corpus.validation_fraction = 0.7; }),
              HasSubstr("prepare --validation-fraction=0.7 is not in [0, 0.5]"));
  EXPECT_THAT(complaint([](auto& o) { o.corpus.max_bytes = -1; }), HasSubstr("prepare --max-bytes=-1"));
  EXPECT_THAT(complaint([](auto& o) { o.vocab_size = 10; }), HasSubstr("--vocab-size=10"));
  EXPECT_THAT(complaint([](auto& o) { o.min_frequency = 0; }), HasSubstr("--min-frequency=0"));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("out")));  // nothing is touched for a bad request
  EXPECT_THAT(complaint([&](auto& o) { o.output = scratch.path("in/a/b"); }), HasSubstr("in/a is not a folder"));
  EXPECT_THAT(complaint([](auto& o) { o.tokenizer = "/no/such/tokenizer.json"; }),
              HasSubstr("/no/such/tokenizer.json cannot be read"));
  scratch.write("few.jsonl", "{\"text\": \"a\"}\n");
  EXPECT_THAT(complaint([&](auto& o) {
                o.corpus.inputs = {scratch.path("few.jsonl")};
                o.corpus.validation_fraction = 1e-9;
              }),
              HasSubstr("leaves no document of 1 for validation"));
}

}  // namespace
}  // namespace echelon
