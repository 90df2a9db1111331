// Generation goes on from where it is, whether tokens came in a prompt or one at a time.
#include "engine/generation/generate.h"

#include "engine/generation/decoder.h"

#include "blueprint/small_config.h"
#include "checkpoint/scratch_folder.h"
#include "comm/thread/thread_world.h"
#include "data/indexed_dataset.h"
#include "train/train.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace echelon {
namespace {

/// A tokenizer without merges, so that any text of letters has one encoding: a to z come first, then the other bytes in
/// GPT-2's alphabet, where a byte that does not print stands as one of the characters from 256 on.
std::string bytes_tokenizer() {
  std::string vocabulary;
  int num_tokens = 0, num_hidden = 0;
  const auto add = [&](int character) {
    vocabulary += fmt::format(R"({}"\u{:04x}":{})", num_tokens > 0 ? "," : "", character, num_tokens), ++num_tokens;
  };
  for (int byte = 'a'; byte <= 'z'; ++byte) add(byte);
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    if (byte < 'a' || byte > 'z') add(prints ? byte : 256 + num_hidden++);
  }
  return R"({"model":{"type":"BPE","vocab":{)" + vocabulary +
         R"(},"merges":[]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"}})";
}

TEST(Generate, GoesOnTheSameFromAPromptAndFromItsOwnTokens) {
  const ScratchFolder scratch;
  put(scratch / "tokenizer.json", bytes_tokenizer());
  IndexedDatasetWriter writer((scratch / "train").string(), TokenType::u16);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 500; ++i) tokens.push_back(i * i % 23);
  writer.add_document(tokens);
  writer.publish();
  RunConfig config = testing::small_config();
  config.model.vocab_size = 256;
  config.model.initializer_range = 0.3;
  config.data.path = (scratch / "train").string();
  config.training.global_batch_size = 4;
  config.training.steps = 30;  // enough to know that only letters come
  config.optimizer.lr = 1e-2;
  config.checkpoint.tokenizer = (scratch / "tokenizer.json").string();
  config.output.dir = (scratch / "out").string();
  const std::filesystem::path model = train(config, {}).model_folder;

  const auto likeliest = [&](const std::string& prompt, std::int64_t count) {
    return generate({.model = model,
                     .prompt = prompt,
                     .max_new_tokens = count,
                     .sampling = {.temperature = 0},
                     .on_text = {}})
        ->text;
  };
  const std::string prompt = "generation", text = likeliest(prompt, 24);
  ASSERT_EQ(text.size(), 24U);
  EXPECT_GT(std::set<char>(text.begin(), text.end()).size(), 3U) << text;
  for (const std::size_t known : {1U, 7U, 23U})
    EXPECT_EQ(likeliest(prompt + text.substr(0, known), 24 - static_cast<std::int64_t>(known)), text.substr(known));
}

// From the exported folder, and from the checkpoint of the run.
TEST(Generate, SaysThatAMixtureWithACapacityDropsNothing) {
  const ScratchFolder scratch;
  put(scratch / "tokenizer.json", bytes_tokenizer());
  IndexedDatasetWriter writer((scratch / "train").string(), TokenType::u16);
  writer.add_document(std::vector<std::int32_t>(500, 7));
  writer.publish();
  for (const double factor : {MoeConfig().capacity_factor, 1.5}) {
    RunConfig config = testing::small_config();
    config.model = preset("mixtral-30m");
    config.model.num_hidden_layers = 1;
    config.model.vocab_size = 256;
    config.data.path = (scratch / "train").string();
    config.training.global_batch_size = config.training.micro_batch_size = 1;
    config.training.steps = 1;
    config.moe.capacity_factor = factor;
    config.checkpoint.interval = 1;
    config.checkpoint.tokenizer = (scratch / "tokenizer.json").string();
    config.output.dir = (scratch / fmt::format("out{}", factor)).string();
    const TrainResult result = train(config, {});
    for (const std::filesystem::path& model :
         {std::filesystem::path(result.model_folder), std::filesystem::path(config.output.dir) / "checkpoint/step-1"}) {
      std::string note;
      try {
        note = generate({.model = model, .prompt = "a", .max_new_tokens = 1, .sampling = {}, .on_text = {}})->note;
      } catch (const Error& error) {
        note = error.what();
      }
      EXPECT_EQ(note, factor == 1.5 ? "no row is dropped: moe.capacity_factor = 1.5 is for training" : "") << model;
    }
  }
}

// A prompt of four tokens, then one token at a time, which most ranks have no expert for.
TEST(Generate, HasTheLogitsOfOneRankWhereRanksDivideExperts) {
  const ScratchFolder scratch;
  IndexedDatasetWriter writer((scratch / "train").string(), TokenType::u16);
  writer.add_document(std::vector<std::int32_t>(500, 7));
  writer.publish();
  for (const char* const name : {"mixtral-30m", "deepseek-v3-28m"}) {
    RunConfig config = testing::small_config();
    config.model = preset(name);
    config.model.num_hidden_layers = 2;
    config.model.vocab_size = 64;
    config.model.initializer_range = 0.2;
    config.data.path = (scratch / "train").string();
    config.training.global_batch_size = config.training.micro_batch_size = 1;
    config.training.steps = 1;
    config.output.dir = (scratch / name).string();
    const ModelReader reader(train(config, {}).model_folder);
    const auto logits_of = [&](int num_ranks) {
      std::vector<double> logits;
      const std::unique_ptr<Backend> backend = open_backend(DeviceChoice::cpu);
      run_thread_ranks(generation_mesh(num_ranks), {}, [&](Mesh& mesh) {
        const std::unique_ptr<RankDevice> device = backend->open(mesh, {});
        Decoder decoder(reader.spec(), {.num_prompt_tokens = 4, .num_positions = 8}, *device);
        decoder.load(reader);
        for (const std::vector<std::int32_t>& tokens :
             std::vector<std::vector<std::int32_t>>{{3, 50, 7, 7}, {21}, {2}, {63}})
          for (const double logit : decoder.decode(tokens))
            if (mesh.rank() == num_ranks - 1) logits.push_back(logit);
      });
      return logits;
    };
    const std::vector<double> expected = logits_of(1);
    for (const int num_ranks : {2, 4, 8})
      EXPECT_THAT(logits_of(num_ranks), ::testing::Pointwise(::testing::DoubleNear(1e-4), expected))
          << name << num_ranks;
    EXPECT_GT(*std::ranges::max_element(expected) - *std::ranges::min_element(expected), 0.1) << name;
  }
}

}  // namespace
}  // namespace echelon
