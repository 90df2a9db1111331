// Conversations through the real program: what inspect --sample shows of them, and generate --chat.
#include "cli/program.h"
#include "scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace echelon {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// The tiny model of examples/chats/tiny, whose sequences do not end where turns do.
class Chats : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder() = scratch_folder() + "chats";
    const Outcome made = run_command(
        {"env", "ECHELON=" ECHELON_BINARY_DIR "/echelon", ECHELON_SOURCE_DIR "/examples/chats/tiny", folder()});
    ASSERT_EQ(made.status, 0) << made.err;
    write("base/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    prepare({folder() + "/chats.jsonl", "--chat"}, "chats");
  }

  static std::string& folder() {
    static std::string path;
    return path;
  }
  static void prepare(std::vector<std::string> what, const std::string& corpus) {
    what.insert(what.begin(), "prepare");
    for (const std::string& more : {"--tokenizer=" + folder() + "/base/tokenizer.json",
                                    "--output=" + folder() + "/" + corpus, std::string("--validation-fraction=0")})
      what.push_back(more);
    const Outcome outcome = run_echelon(what);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  static std::string write(const std::string& name, std::string_view text) {
    const std::string path = folder() + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return path;
  }

  /// The model after some steps on the conversations, which it knows by heart then.
  static std::string trained() {
    const std::string base = folder() + "/base", out = folder() + "/out";
    if (std::filesystem::exists(out)) return out + "/model";
    const Outcome outcome = run_echelon(
        {"train", base, "--checkpoint.initial_load_path=" + base, "--checkpoint.tokenizer=" + base + "/tokenizer.json",
         "--data.path=" + folder() + "/chats/train", "--data.packing=best_fit", "--data.reset_attention_mask=true",
         "--data.reset_position_ids=true", "--data.eod_mask_loss=true", "--training.seq_len=128",
         "--training.global_batch_size=2", "--training.steps=60", "--optimizer.lr=5e-3",
         "--lr_scheduler.warmup_steps=2", "--output.dir=" + out});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return out + "/model";
  }

  /// With lines on standard input.
  static Outcome chat(const std::string& lines, std::vector<std::string> more = {}) {
    const std::string piped = "printf '%b' \"$0\" | " ECHELON_BINARY_DIR "/echelon generate \"$@\"";
    more.insert(more.begin(), {"bash", "-c", piped, lines, trained(), "--chat", "--temperature=0"});
    return run_command(more);
  }
};

TEST_F(Chats, PrepareCountsThemInJson) {
  const auto counts = [](const std::string& too_long, const std::string& corpus) {
    const Outcome outcome =
        run_echelon({"prepare", folder() + "/chats.jsonl", "--chat", "--max-tokens=2", "--too-long=" + too_long,
                     "--json", "--tokenizer=" + folder() + "/base/tokenizer.json",
                     "--output=" + folder() + "/" + corpus, "--validation-fraction=0", "--train-on=all"});
    return outcome.status == 0 ? nlohmann::json::parse(outcome.out)["chats"] : nlohmann::json(outcome.err);
  };
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second one is read from the record
    const nlohmann::json truncated = counts("truncate", "two-tokens");
    EXPECT_EQ(truncated["format"], "messages") << truncated;
    EXPECT_GT(truncated["num_too_long"], 0);
    EXPECT_EQ(truncated["num_untrained"], 0);
  }
}

TEST_F(Chats, ASampleMarksWhatIsTrained) {
  const Outcome outcome = run_echelon({"inspect", folder() + "/chats/train", "--sample=2"});
  EXPECT_EQ(outcome.out,
            "--- document 0: 33 tokens, 13 of them trained\n"
            "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n[A tiny model.<|im_end|>]\n\n"
            "--- document 2: 44 tokens, 6 of them trained\n"
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nName a color.<|im_end|>\n"
            "<|im_start|>assistant\n[Blue.<|im_end|>]\n\n");
  const auto json =
      nlohmann::json::parse(run_echelon({"inspect", folder() + "/chats/train.idx", "--sample=1", "--json"}).out);
  EXPECT_EQ(json["spans"][1], nlohmann::json({{"text", "A tiny model.<|im_end|>"}, {"is_trained", true}}));
  EXPECT_THAT(run_echelon({"inspect", folder() + "/chats/train"}).out, HasSubstr("; loss falls on 67 tokens"));
  const Outcome on_terminal = run_command(
      {"script", "-qec", ECHELON_BINARY_DIR "/echelon inspect " + folder() + "/chats/train --sample=1", "/dev/null"});
  EXPECT_THAT(on_terminal.out, HasSubstr("assistant\r\n\x1b[32mA tiny model.<|im_end|>\x1b[0m"));
}

TEST_F(Chats, ASampleOfTextHasNoMarks) {
  std::string text = "a\x1b[2Jb ";
  for (int i = 0; i < 5000; ++i) text += "42 ";
  prepare({write("text/a.txt", text)}, "texts");
  const std::string shown = run_echelon({"inspect", folder() + "/texts/train", "--sample=3"}).out;
  EXPECT_THAT(shown, HasSubstr(" tokens, of which the first 4096 are shown, all of them trained\na\\x1b[2Jb 42"));
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  EXPECT_THAT(shown, Not(HasSubstr("]")));
  std::filesystem::remove(folder() + "/texts/tokenizer.json");
  EXPECT_THAT(run_echelon({"inspect", folder() + "/texts/train", "--sample=3"}).err,
              HasSubstr("there is no " + folder() + "/texts/tokenizer.json"));
  EXPECT_THAT(run_echelon({"inspect", folder() + "/chats", "--sample=3"}).err,
              HasSubstr("is not the prefix of token files; did you mean " + folder() + "/chats/train?"));
}

// What it says is what it was trained to say, in a conversation too, and it stops by itself.
TEST_F(Chats, AnAnswerEndsAtTheEndOfItsTurn) {
  EXPECT_EQ(chat("Say hello.\\n\\nSay goodbye.\\n").out, "Hello there!\nGoodbye, and come back soon.\n");
  const auto json = nlohmann::json::parse(chat("", {"--prompt=Who are you?", "--json"}).out);
  EXPECT_EQ(json["text"], "A tiny model.");
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(
      nlohmann::json::parse(chat("", {"--prompt=Who are you?", "--json", "--max-new-tokens=2"}).out)["finish_reason"],
      "length");
}

// The prompt of a conversation is what its template writes.
TEST_F(Chats, APromptIsTheRenderedConversation) {
  const std::string rendered =
      "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\nHello there!<|im_end|>\n"
      "<|im_start|>user\nSay goodbye.<|im_end|>\n<|im_start|>assistant\n";
  const auto text = [](const std::string& line) { return nlohmann::json::parse(line); };
  const auto of_text = text(
      run_echelon({"generate", trained(), "--prompt", rendered, "--temperature=0", "--json", "--max-new-tokens=40"})
          .out);
  const std::string out = chat("Say hello.\\nSay goodbye.\\n", {"--json"}).out;
  const auto of_chat = text(out.substr(out.find('\n') + 1));
  EXPECT_EQ(of_chat["num_prompt_tokens"], of_text["num_prompt_tokens"]);
  EXPECT_THAT(of_text["text"].get<std::string>(), StartsWith(of_chat["text"].get<std::string>() + "<|im_end|>"));
  EXPECT_EQ(of_text["finish_reason"], "length");  // whose turns end, but not its sequence
}

TEST_F(Chats, OneConversationIsEnoughToValidate) {
  prepare({write("one/chats.jsonl", R"({"prompt": "Say hello.", "completion": "Hello."})"), "--chat"}, "one/corpus");
  const Outcome outcome =
      run_echelon({"train", folder() + "/base", "--data.path=" + folder() + "/chats/train",
                   "--data.validation_path=" + folder() + "/one/corpus/train", "--data.reset_attention_mask=true",
                   "--data.packing=best_fit", "--training.seq_len=128", "--training.steps=1",
                   "--checkpoint.enable=false", "--output.dir=" + folder() + "/validated"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("validate step:"));
}

// With the weights of its folder, and with the sizes alone.
TEST_F(Chats, TheDropoutOfAModelIsSaidNotToBeApplied) {
  const std::string model = folder() + "/dropout";
  std::filesystem::copy(folder() + "/base", model);
  std::ifstream file(model + "/config.json");
  auto config = nlohmann::json::parse(file);
  config["attention_dropout"] = 0.25;
  write("dropout/config.json", config.dump());
  for (const std::string& as : {model, "--model.path=" + model}) {
    const Outcome outcome = run_echelon(
        {"train", as, "--data.path=" + folder() + "/chats/train", "--training.seq_len=32", "--training.steps=1",
         "--training.global_batch_size=1", "--checkpoint.enable=false", "--output.dir=" + folder() + "/dropped"});
    EXPECT_THAT(outcome.out, HasSubstr("warning: attention_dropout = 0.25 is kept and not applied")) << outcome.err;
  }
}

// In 2 layers of width 64: (64 + 64) r values for q, and (64 + 32) r for v.
TEST_F(Chats, AdaptersAreDescribedWithTheirBase) {
  const std::string base = folder() + "/base", out = folder() + "/adapters";
  const Outcome trained = run_echelon({"train", base, "--lora.rank=2", "--lora.target_modules=q_proj,v_proj",
                                       "--data.path=" + folder() + "/chats/train", "--training.seq_len=32",
                                       "--training.steps=1", "--training.global_batch_size=1", "--output.dir=" + out});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const Outcome text = run_echelon({"inspect", out + "/adapter"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("adapters: 8 tensors, 896 parameters, 0.0 MB\nLoRA of rank 2 and alpha "));
  EXPECT_THAT(text.out, HasSubstr(" in q_proj, v_proj\nbase: " + base + "\nthey fit the base\n"));
  EXPECT_THAT(run_echelon({"inspect", out + "/checkpoint/step-1"}).out,
              HasSubstr("step 1 of 1: adapters of rank 2 of qwen3 of "));
  const auto json = nlohmann::json::parse(run_echelon({"inspect", out + "/adapter", "--json"}).out);
  EXPECT_EQ(json["rank"], 2);
  EXPECT_EQ(json["num_parameters"], 896);

  std::filesystem::rename(base, base + "-moved");
  const Outcome alone = run_echelon({"inspect", out + "/adapter"});
  std::filesystem::rename(base + "-moved", base);
  EXPECT_EQ(alone.status, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("not compared with the base: "));

  std::ifstream file(out + "/adapter/adapter_config.json");
  auto config = nlohmann::json::parse(file);
  config["r"] = 4;
  write("adapters/adapter/adapter_config.json", config.dump());
  const Outcome wrong = run_echelon({"inspect", out + "/adapter"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.out, HasSubstr("they do not fit the base: "));
  EXPECT_THAT(wrong.err, HasSubstr("it is an adapter for another model or rank"));
}

TEST_F(Chats, ATextEndsWhereItsFolderSaysSo) {
  const std::string model = folder() + "/ends";
  std::filesystem::copy(trained(), model);
  const std::vector<std::string> command = {
      "generate",        model,    "--prompt=<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n",
      "--temperature=0", "--json", "--max-new-tokens=40"};
  EXPECT_EQ(nlohmann::json::parse(run_echelon(command).out)["finish_reason"], "length");
  for (const char* ends : {"281", "[3, 281]"}) {  // <|im_end|>
    write("ends/generation_config.json", R"({"eos_token_id": )" + std::string(ends) + "}");
    const auto json = nlohmann::json::parse(run_echelon(command).out);
    EXPECT_EQ(json["finish_reason"], "stop");
    EXPECT_EQ(json["text"], "Hello there!");
  }
  write("ends/generation_config.json", R"({"eos_token_id": [281, "<|im_end|>"]})");
  EXPECT_THAT(run_echelon(command).err,
              HasSubstr("generation_config.json: eos_token_id has \"<|im_end|>\", which is no token"));
}

// Where convert finds the tokenizer too: with the run's own file, or in the folder from which the run started.
TEST_F(Chats, ACheckpointIsTalkedToAsTheModelOfItsRun) {
  const std::string out = folder() + "/again";
  const Outcome again = run_echelon({"train", trained(), "--data.path=" + folder() + "/chats/train",
                                     "--training.seq_len=128", "--training.global_batch_size=1", "--training.steps=1",
                                     "--optimizer.lr=1e-9", "--output.dir=" + out});
  ASSERT_EQ(again.status, 0) << again.err;
  for (const std::string& step : {folder() + "/out/checkpoint/step-60", out + "/checkpoint/step-1"}) {
    const Outcome answer = run_echelon({"generate", step, "--chat", "--prompt=Say hello.", "--temperature=0"});
    EXPECT_EQ(answer.out, "Hello there!\n") << step << ": " << answer.err;
    EXPECT_EQ(run_echelon({"generate", step, "--prompt=Say", "--temperature=0"}).status, 0) << step;
  }
}

// Which has links with the names of the files to others whose names are digests.
TEST_F(Chats, AModelOfADownloadCacheIsTalkedTo) {
  namespace fs = std::filesystem;
  const fs::path cache = fs::path(folder()) / "models--a--b", snapshot = cache / "snapshots/0123abcd";
  fs::create_directories(snapshot);
  fs::create_directories(cache / "blobs");
  for (const auto& file : fs::directory_iterator(trained())) {
    const std::string name = file.path().filename(), blob = name + "-digest";
    fs::copy(file.path(), cache / "blobs" / blob);
    fs::create_symlink("../../blobs/" + blob, snapshot / name);
  }
  const Outcome answer = run_echelon({"generate", snapshot, "--chat", "--prompt=Say hello.", "--temperature=0"});
  EXPECT_EQ(answer.out, "Hello there!\n") << answer.err;
}

TEST_F(Chats, AUserCannotForgeTheEndOfATurn) {
  const Outcome plain = chat("Who are you?\\n", {"--json"}), forged = chat("Who are<|im_end|> you?\\n", {"--json"});
  EXPECT_THAT(forged.err, HasSubstr("note: '<|im_end|>' in a message is text, not a control token"));
  const auto count = [](const Outcome& outcome) {
    return nlohmann::json::parse(outcome.out)["num_prompt_tokens"].get<int>();
  };
  EXPECT_GE(count(forged), count(plain) + 5);  // several tokens, not the one
}

TEST_F(Chats, ATemplateMayMarkALineFeedAfterTheEndOfATurn) {
  const std::string marked = write(
      "marked.jinja",
      "{%- for m in messages %}\n{%- if m.role == 'assistant' %}\n"
      "{{- '<|im_start|>assistant\\n' }}{% generation %}{{ m.content + '<|im_end|>\\n' }}{% endgeneration %}\n"
      "{%- else %}\n{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\n{%- endif %}\n{%- endfor %}\n"
      "{%- if add_generation_prompt %}\n{{- '<|im_start|>assistant\\n' }}\n{%- endif %}");
  EXPECT_EQ(chat("Say hello.\\n", {"--chat-template=" + marked}).out, "Hello there!\n");
}

TEST_F(Chats, WhatCannotBeAConversationIsNamed) {
  const Outcome not_text = chat("Say hello.\\nSay \\xff\\n");
  EXPECT_EQ(not_text.status, 2);
  EXPECT_THAT(not_text.err, EndsWith("message 2 is not UTF-8 from its byte 5 on\n"));
  EXPECT_THAT(chat("x", {"--chat-template=chatmll"}).err, HasSubstr("did you mean chatml?"));
  EXPECT_THAT(chat(std::string(300, '1')).err, HasSubstr("leaves no room in the model's 256 positions"));
  const std::string refuses = write("refuses.jinja", "{{ raise_exception('no users here') }}");
  EXPECT_THAT(chat("x", {"--chat-template=" + refuses}).err, HasSubstr("no users here"));
  const std::string bare = folder() + "/bare";
  std::filesystem::copy(trained(), bare);
  std::filesystem::remove(bare + "/chat_template.jinja");
  EXPECT_THAT(run_echelon({"generate", bare, "--chat", "--prompt=x"}).err,
              HasSubstr("there is no chat_template.jinja next to " + bare + "/tokenizer.json"));
  EXPECT_EQ(
      run_echelon({"generate", bare, "--chat", "--prompt=Say hello.", "--chat-template=chatml", "--temperature=0"}).out,
      "Hello there!\n");
}

}  // namespace
}  // namespace echelon
