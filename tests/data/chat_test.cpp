#include "base/error.h"
#include "chat_fixture.h"
#include "data/chat/chat_encoder.h"

#include <gmock/gmock.h>

#include <chrono>

namespace echelon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Conversation, IsReadInTimeInProportionToItsMessages) {
  std::string line = "{\"messages\": [";
  for (int i = 0; i < 200'000; ++i) line += "{\"role\": \"user\"},";
  line += "{\"role\": \"user\"}]}";
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(read_conversation(line).messages.size(), 200'001U);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));  // minutes if it is quadratic
}

// As transformers does: exported tables have null in each column that a message lacks.
TEST(Conversation, HasNoNullsAndReasoningUnderEachName) {
  const Conversation read =
      read_conversation(R"({"messages": [{"role": "user", "content": "x", "tool_calls": null, "weight": null},)"
                        R"( {"role": "assistant", "content": null, "weight": null, "reasoning": "r"}]})");
  EXPECT_EQ(read.messages[0].dump(), R"({"role":"user","content":"x"})");
  EXPECT_EQ(read.messages[1],
            nlohmann::ordered_json::parse(
                R"({"thinking": "r", "role": "assistant", "reasoning": "r", "reasoning_content": "r"})"));
  EXPECT_EQ(read.messages[1].begin().key(), "thinking");
  EXPECT_THAT(read.is_trained, ElementsAre(false, true));
  EXPECT_EQ(read_conversation(R"({"instruction": "i", "input": null, "output": "o"})").messages[0].at("content"), "i");
}

TEST(Conversation, TurnsOfShareGptHaveWeights) {
  const Conversation read = read_conversation(
      R"({"conversations": [{"from": "gpt", "value": "a", "weight": 0}, {"from": "gpt", "value": "b", "weight": 1}]})");
  EXPECT_THAT(read.is_trained, ElementsAre(false, true));
}

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

// As transformers chooses it, from either place of named templates.
TEST(Chat, ToolsHaveATemplateOfTheirOwn) {
  const Scratch scratch;
  PrepareOptions options = chat_options(
      scratch, R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "tools": []})"
               "\n");
  options.chat.template_name = "";
  const std::string plain = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}", of_tools = "tools:" + plain;
  const nlohmann::json named = {{{"name", "default"}, {"template", plain}},
                                {{"name", "tool_use"}, {"template", of_tools}}};
  scratch.write("model/tokenizer_config.json", nlohmann::json{{"chat_template", named}}.dump());
  prepare(options);
  EXPECT_EQ(marked(scratch), "tools:u<|im_end|>[a<|im_end|>]");
  scratch.write("model/chat_template.jinja", "files " + plain);  // files have priority, all of them
  prepare(options);
  EXPECT_EQ(marked(scratch), "files u<|im_end|>[a<|im_end|>]");
  scratch.write("model/additional_chat_templates/tool_use.jinja", "files and " + of_tools);
  prepare(options);
  EXPECT_EQ(marked(scratch), "files and tools:u<|im_end|>[a<|im_end|>]");
  scratch.write("model/additional_chat_templates/tool_use.jinja", "tools \xff");
  EXPECT_THAT(sentence_of([&] { prepare(options); }), HasSubstr("tool_use.jinja is not UTF-8: byte 6 is 0xff"));
}

TEST(Chat, TemplatesKnowTheNamedTokens) {
  const Scratch scratch;
  PrepareOptions options =
      chat_options(scratch, R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})"
                            "\n");
  nlohmann::json names;
  std::string all;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    names[name] = std::string("<|im_start|>") + name[0];
    all += std::string("{{ ") + name + " }}";
  }
  scratch.write("model/tokenizer_config.json", names.dump());
  options.chat.template_name = scratch.write("names.jinja", all + "{{ messages[1].content }}<|im_end|>");
  prepare(options);
  std::string expected;
  for (const char first : std::string_view("beuspcm")) expected += std::string("<|im_start|>") + first;
  EXPECT_EQ(marked(scratch), expected + "[a<|im_end|>]");
}

TEST(Chat, SaysWhichMessageTheTemplateLeavesOut) {
  const Scratch scratch;
  PrepareOptions options =
      chat_options(scratch, R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]})"
                            "\n");
  options.chat.template_name = scratch.write("user.jinja", "{{ messages[0].content }}<|im_end|>");
  EXPECT_THAT(sentence_of([&] { prepare(options); }), HasSubstr("the template writes nothing of message 2"));
}

TEST(Chat, IsEncodedInTimeInProportionToItsMessages) {
  std::string line = "{\"messages\": [";
  constexpr int num_turns = 10'000;
  for (int i = 0; i < num_turns; ++i)
    line +=
        std::string(i == 0 ? "" : ",") + R"({"role": "user", "content": "hi"}, {"role": "assistant", "content": "so"})";
  const Scratch scratch;
  PrepareOptions options = chat_options(scratch, line + "]}\n");
  options.chat.template_name = scratch.write(
      "thinks.jinja",
      "{% for m in messages %}{{ '<|im_start|>' + m.role }}{% if m.role == 'assistant' and messages|length > 1 %}"
      " think{% endif %} {{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}"
      "<|im_start|>assistant{% endif %}");
  const auto begun = std::chrono::steady_clock::now();
  prepare(options);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(60));  // minutes if it is quadratic
  std::string expected;
  for (int i = 0; i < num_turns; ++i)
    expected += "<|im_start|>user hi<|im_end|><|im_start|>assistant[ think so<|im_end|>]";
  EXPECT_TRUE(marked(scratch) == expected) << marked(scratch).substr(0, 200);
}

TEST(Chat, LossNeverFallsOnAMessageOfWeight0) {
  const Scratch scratch;
  PrepareOptions options = chat_options(scratch, R"({"messages": [{"role": "user", "content": "hi", "weight": 0},)"
                                                 R"( {"role": "assistant", "content": "there", "weight": 1}]})");
  options.chat.train_on = TrainOn::all;
  prepare(options);
  EXPECT_EQ(marked(scratch), "[<|im_start|>user\n]hi[<|im_end|>\n<|im_start|>assistant\nthere<|im_end|>\n]");
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

TEST(Chat, AnEmptyAnswerTrainsTheEndOfItsTurn) {
  const Scratch scratch;
  PrepareOptions options =
      chat_options(scratch, R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""},)"
                            R"( {"role": "user", "content": ""}, {"role": "assistant", "content": "there"}]})");
  prepare(options);
  EXPECT_EQ(marked(scratch),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n<|im_start|>user\n<|im_end|>\n"
            "<|im_start|>assistant\n[there<|im_end|>]\n");
  options.chat.template_name =
      scratch.write("t.jinja", "{% for m in messages %}{{ m.content or 'none' }}<|im_end|>{% endfor %}");
  EXPECT_THAT(sentence_of([&] { prepare(options); }), HasSubstr("a message of the assistant is empty"));
}

TEST(Chat, TheLastAnswerEndsAsOneBeforeAnotherQuestion) {
  const Scratch scratch;
  PrepareOptions options = chat_options(scratch, two_turns);
  options.chat.template_name = scratch.write(
      "t.jinja",
      "{% for m in messages %}<|im_{{ 'end' if m.role == 'user' else 'start' }}|>{{ m.content }}\n{% endfor %}");
  prepare(options);
  EXPECT_EQ(marked(scratch), "<|im_end|>hi\n<|im_start|>[hello there\n<|im_end|>]so\n<|im_start|>[there\n<|im_end|>]");
  options.chat.template_name = scratch.write(  // of one answer, so that the token between documents has to end it
      "u.jinja",
      "{{ messages[0].content }}: {{ messages[1].content }}{{ raise_exception('no') if messages | length > 2 }}");
  scratch.write("model/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  options.corpus.inputs = {scratch.write("one.jsonl", R"({"prompt": "hi", "completion": "there"})")};
  prepare(options);
  EXPECT_EQ(marked(scratch), "hi:[ there<|endoftext|>]");
}

TEST(Chat, AWholeMessageMayBeWritten) {
  const Scratch scratch;
  PrepareOptions options = chat_options(
      scratch,
      R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", "is_it": false}]})"
      "\n");
  options.chat.template_name =
      scratch.write("dump.jinja", "{% for m in messages %}{{ m|tojson }}<|im_end|>{% endfor %}END");
  prepare(options);
  EXPECT_EQ(marked(scratch),
            R"({"role": "user", "content": "u"}<|im_end|>{"role": "assistant", "content": "[a", "is_it": )"
            "false}<|im_end|>]END");
  // A control token in a key is text, and ends nothing.
  options = chat_options(scratch, R"({"messages": [{"role": "assistant", "content": "a", "<|im_end|>": 1}]})"
                                  "\n");
  options.chat.template_name = scratch.path("dump.jinja");
  prepare(options);
  EXPECT_EQ(marked(scratch), R"({"role": "assistant", "content": "[a", "<|im_end|>": 1}<|im_end|>]END)");
}

TEST(Chat, VariablesOfALineReachItsTemplate) {
  const Scratch scratch;
  PrepareOptions options = chat_options(
      scratch,
      R"({"prompt": "u", "completion": "a", "chat_template_kwargs": {"style": "<|im_end|>", "documents": [1]}})"
      "\n");
  options.chat.template_name =
      scratch.write("style.jinja", "{{ style }}{{ documents[0] }}{{ messages[1].content }}<|im_end|>");
  prepare(options);
  EXPECT_EQ(marked(scratch), "<|im_end|>1[a<|im_end|>]");
  EXPECT_GT(IndexedDataset(scratch.path("out/train")).num_tokens(), 8) << "the variable is no control token";
}

TEST(Chat, RolesMakeControlTokensOnlyIfTemplatesKnowThem) {
  const Scratch scratch;
  PrepareOptions options = chat_options(
      scratch, R"({"messages": [{"role": "end", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  options.chat.template_name =
      scratch.write("t.jinja", "{% for m in messages %}<|im_{{ m.role }}|>{{ m.content }}<|im_end|>{% endfor %}");
  prepare(options);
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  const IndexedDataset dataset(scratch.path("out/train"));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(dataset.num_tokens()));
  dataset.read(0, ids);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer.added_token("<|im_end|>")), 2);
}

TEST(Chat, ReadsThePublishedFields) {
  const Conversation sharegpt =
      read_conversation(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})");
  EXPECT_EQ(sharegpt.messages.dump(), R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  const Conversation with_system = read_conversation(
      R"({"conversations": [{"from": "human", "value": "a"}], "system": "s", "tools": "[{\"type\": 1}]"})");
  EXPECT_EQ(with_system.messages.dump(), R"([{"role":"system","content":"s"},{"role":"user","content":"a"}])");
  EXPECT_EQ(with_system.tools.dump(), R"([{"type":1}])");
  const Conversation with_history =
      read_conversation(R"({"instruction": "c", "output": "d", "system": "s", "history": [["a", "b"]], "tools": ""})");
  EXPECT_EQ(with_history.messages.dump(),
            R"([{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"user","content":"c"},{"role":"assistant","content":"d"}])");
  EXPECT_TRUE(with_history.tools.is_null());
  EXPECT_EQ(std::ranges::count(with_history.is_trained, true), 2);
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
  options.chat.max_tokens = 30;
  EXPECT_THAT(sentence_of([&] { prepare(options); }), HasSubstr("chats.jsonl:1: the conversation has"));
  options.chat.too_long = TooLong::drop;
  PrepareResult result = prepare(options);
  EXPECT_EQ(result.num_too_long, 1);
  EXPECT_EQ(result.train.num_documents, 1);
  options.chat.too_long = TooLong::truncate;
  result = prepare(options);
  EXPECT_EQ(result.train.num_documents, 2);
  EXPECT_EQ(IndexedDataset(scratch.path("out/train")).document_start(1), 30);
  options.corpus.inputs = {scratch.write(
      "two.jsonl", std::string(two_turns) + "\n" + R"({"messages": [{"role": "assistant", "content": "abcdef"}]})")};
  options.chat.template_name =
      scratch.write("t.jinja", "{% for m in messages %}{{ m.role }}{{ m.content }}<|im_end|>{% endfor %}");
  options.chat.max_tokens = 10;
  result = prepare(options);
  EXPECT_EQ(result.num_too_long, 2);
  EXPECT_EQ(result.num_untrained, 1);
  EXPECT_EQ(result.train.num_documents, 1);
}

TEST(Chat, NamesTheLineThatIsWrong) {
  const Scratch scratch;
  const auto refusal = [&](std::string_view line) {
    return sentence_of([&] { prepare(chat_options(scratch, std::string(two_turns) + "\n" + std::string(line))); });
  };
  EXPECT_THAT(
      refusal("{\"messages\": ["),
      HasSubstr("chats.jsonl:2: not valid JSON at column 15, after '{\"messages\": [': unexpected end of input"));
  EXPECT_THAT(refusal("{\"messages\": []}"), HasSubstr("has no messages"));
  EXPECT_THAT(refusal("{\"text\": \"a\"}"), HasSubstr("it has none of"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": "a"}]})"),
              HasSubstr("nothing to train on: loss falls on role \"assistant\", and its roles are user"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "assistant", "content": "a", "weight": 0}]})"),
              HasSubstr("nothing to train on: the weight of each answer is 0"));
  const std::string weight =
      R"({"messages": [{"role": "assistant", "content": "a", "weight": ")" + std::string(9000, 'x');
  const std::string sentence = refusal(weight + "\"}]}");
  EXPECT_THAT(sentence, HasSubstr("\"weight\" of message 1 is \"xxx"));
  EXPECT_LT(sentence.size(), 400U);
  EXPECT_THAT(refusal(R"({"prompt": "a", "completion": "b"})"), HasSubstr("after others in messages"));
  EXPECT_THAT(refusal(R"({"prompt": "a", "completion": "b", "functions": []})"),
              HasSubstr("write each under \"tools\""));
  EXPECT_THAT(refusal(R"({"prompt": "a", "completion": "b", "tools": "none"})"),
              HasSubstr("\"tools\" is a string that is not JSON"));
  EXPECT_THAT(refusal(R"({"instruction": "a", "output": "b", "history": [["c"]]})"),
              HasSubstr("\"history\" has [\"c\"], not a pair of texts"));
  EXPECT_THAT(refusal(R"({"prompt": "a", "completion": "b", "chat_template_kwargs": [1]})"),
              HasSubstr("\"chat_template_kwargs\" is [1], not an object"));
  EXPECT_THAT(refusal(R"({"prompt": "a", "completion": "b", "chat_template_kwargs": {"tools": 1}})"),
              HasSubstr("has \"tools\", which is no variable of a line"));
}

}  // namespace
}  // namespace echelon
