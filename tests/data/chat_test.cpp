#include "base/error.h"
#include "data/chat/chat_encoder.h"
#include "data/indexed_dataset.h"
#include "data/loss_mask.h"
#include "data/prepare.h"
#include "scratch.h"

#include <gmock/gmock.h>

namespace echelon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A learned tokenizer with the control tokens of ChatML.
std::string write_tokenizer(const Scratch& scratch) {
  PrepareOptions options;
  options.corpus.inputs = {scratch.write("text.txt", "hello there, said the user to the assistant\n")};
  options.corpus.validation_fraction = 0;
  options.output = scratch.path("base");
  options.vocab_size = 280;
  const auto first = static_cast<int>(prepare(options).vocab_size);
  auto json = nlohmann::ordered_json::parse(scratch.read("base/tokenizer.json"));
  for (const char* content : {"<|im_start|>", "<|im_end|>"}) {
    auto added = json["added_tokens"][0];
    added["id"] = first + static_cast<int>(std::string(content) == "<|im_end|>");
    added["content"] = content;
    json["added_tokens"].push_back(added);
  }
  return scratch.write("model/tokenizer.json", json.dump());
}

PrepareOptions chat_options(const Scratch& scratch, std::string_view lines) {
  PrepareOptions options;
  options.tokenizer = write_tokenizer(scratch);
  options.corpus.inputs = {scratch.write("chats.jsonl", lines)};
  options.corpus.validation_fraction = 0;
  options.output = scratch.path("out");
  options.chat.is_on = true;
  options.chat.template_name = "chatml";
  return options;
}

/// The trained part in brackets.
std::string marked(const Scratch& scratch) {
  const Tokenizer tokenizer = Tokenizer::load(scratch.path("out/tokenizer.json"));
  const IndexedDataset dataset(scratch.path("out/train"));
  const auto mask = LossMask::of(dataset);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(dataset.num_tokens()));
  dataset.read(0, ids);
  std::string text;
  bool was_trained = false;
  for (std::size_t i = 0; i <= ids.size(); ++i) {
    const bool is_trained = i < ids.size() && mask && mask->is_trained(static_cast<std::int64_t>(i));
    if (is_trained != was_trained) text += is_trained ? "[" : "]";
    was_trained = is_trained;
    if (i < ids.size()) text += tokenizer.bytes(ids[i]);
  }
  return text;
}

constexpr std::string_view two_turns =
    R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello there"},)"
    R"( {"role": "user", "content": "so"}, {"role": "assistant", "content": "there"}]})";

TEST(Chat, LossFallsOnAnswersAndTheEndsOfTheirTurns) {
  const Scratch scratch;
  PrepareOptions options = chat_options(scratch, two_turns);
  const std::string start = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
                    then = "\n<|im_start|>user\nso<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(prepare(options).chat_format, "messages");
  EXPECT_EQ(marked(scratch), start + "[hello there<|im_end|>]" + then + "[there<|im_end|>]\n");
  options.chat.train_on = TrainOn::last;
  prepare(options);
  EXPECT_EQ(marked(scratch), start + "hello there<|im_end|>" + then + "[there<|im_end|>]\n");
  options.chat.train_on = TrainOn::all;
  prepare(options);
  EXPECT_EQ(marked(scratch), "[" + start + "hello there<|im_end|>" + then + "there<|im_end|>\n]");
}

TEST(Chat, LossFallsOnWhatTheTemplateMarks) {
  const Scratch scratch;
  PrepareOptions options = chat_options(scratch, two_turns);
  options.chat.template_name =
      scratch.write("t.jinja",
                    "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}"
                    "<|im_start|>{{ m.content }}!{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}");
  prepare(options);
  EXPECT_EQ(marked(scratch),
            "user: hi;assistant: [<|im_start|>hello there!];user: so;assistant: [<|im_start|>there!];");
}

TEST(Chat, AUserCannotForgeAControlToken) {
  const Scratch scratch;
  PrepareOptions options = chat_options(scratch, R"({"prompt": "<|im_end|>", "completion": "<|im_start|>user"})");
  EXPECT_EQ(prepare(options).chat_format, "prompt/completion");
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  const IndexedDataset dataset(scratch.path("out/train"));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(dataset.num_tokens()));
  dataset.read(0, ids);
  for (const char* content : {"<|im_start|>", "<|im_end|>"})
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer.added_token(content)), 2) << content;
  EXPECT_THAT(marked(scratch), HasSubstr("assistant\n[<|im_start|>user<|im_end|>]"));
}

TEST(Chat, RefusesATemplateWhoseTurnsEndWithNoControlToken) {
  const Scratch scratch;
  PrepareOptions options = chat_options(scratch, two_turns);
  options.tokenizer = scratch.path("base/tokenizer.json");  // of plain text
  EXPECT_THAT(sentence_of([&] { prepare(options); }),
              HasSubstr("no control token ends message 2, so a model would not learn to stop"));
  options.chat.train_on = TrainOn::all;
  EXPECT_EQ(prepare(options).train.num_documents, 1);
}

TEST(Chat, ReadsThePublishedFields) {
  const Conversation sharegpt =
      read_conversation(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})");
  EXPECT_EQ(sharegpt.messages.dump(), R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  const Conversation alpaca = read_conversation(R"({"instruction": "a", "input": "x", "output": "b"})");
  EXPECT_EQ(alpaca.messages.dump(), R"([{"role":"user","content":"a\nx"},{"role":"assistant","content":"b"}])");
  const Conversation weighted = read_conversation(R"({"messages": [{"role": "assistant", "content": "a", "weight": 0},)"
                                                  R"({"role": "assistant", "content": "b", "weight": 1}]})");
  EXPECT_THAT(weighted.is_trained, ElementsAre(false, true));
  EXPECT_FALSE(weighted.messages[0].contains("weight"));
}

TEST(Chat, TruncatesDropsOrRefusesWhatIsTooLong) {
  const Scratch scratch;
  PrepareOptions options =
      chat_options(scratch, std::string(two_turns) + "\n" + R"({"messages": [{"role": "assistant", "content": "a"}]})");
  options.chat.max_tokens = 20;
  EXPECT_THAT(sentence_of([&] { prepare(options); }), HasSubstr("chats.jsonl:1: the conversation has"));
  options.chat.too_long = TooLong::drop;
  PrepareResult result = prepare(options);
  EXPECT_EQ(result.num_too_long, 1);
  EXPECT_EQ(result.train.num_documents, 1);
  options.chat.too_long = TooLong::truncate;
  result = prepare(options);
  EXPECT_EQ(result.train.num_documents, 2);
  EXPECT_EQ(IndexedDataset(scratch.path("out/train")).document_start(1), 20);
}

TEST(Chat, NamesTheLineThatIsWrong) {
  const Scratch scratch;
  const auto refusal = [&](std::string_view line) {
    return sentence_of([&] { prepare(chat_options(scratch, std::string(two_turns) + "\n" + std::string(line))); });
  };
  EXPECT_THAT(refusal("{\"messages\": ["), HasSubstr("chats.jsonl:2: not valid JSON"));
  EXPECT_THAT(refusal("{\"messages\": []}"), HasSubstr("has no messages"));
  EXPECT_THAT(refusal("{\"text\": \"a\"}"), HasSubstr("it has none of"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": "a"}]})"), HasSubstr("nothing to train on"));
  EXPECT_THAT(refusal(R"({"prompt": "a", "completion": "b"})"), HasSubstr("after others in messages"));
}

}  // namespace
}  // namespace echelon
