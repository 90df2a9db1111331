// echelon generate: generates text from a saved model.
#include "engine/generation/generate.h"

#include "base/text/tell.h"
#include "cli/chat.h"
#include "cli/command.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

namespace echelon {
namespace {

struct GenerateArguments {
  std::string model;
  GenerateOptions options;
  std::string device{name_of(GenerateOptions().device)};
  bool json = false, is_chat = false;
  std::string chat_template;
};

void print_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);  // the model may generate any bytes
  std::fflush(stdout);
}

ExitStatus run_generation(const GenerateArguments& arguments) {
  require(!arguments.model.empty(), "--model= is empty; it needs a folder");
  GenerateOptions options = arguments.options;
  options.model = arguments.model;
  options.device = parse_exactly<DeviceChoice>("--device", arguments.device);
  if (arguments.is_chat) return run_chat(options, arguments.chat_template, arguments.json);
  if (!arguments.json)
    options.on_text = [begins = true, &options](std::string_view text) mutable {
      if (begins) print_text(options.prompt);  // only after the model is known to exist
      begins = false;
      print_text(text);
    };
  const std::optional<Generation> answer = generate(options);
  if (!answer) return ExitStatus::success;  // the process of rank 0 prints it
  const Generation& generation = *answer;
  if (!generation.note.empty()) tell("note: {}\n", generation.note);
  if (!arguments.json) {
    print_text("\n");
    // Prints the GPU, or the reason for using none if a driver exists.
    if (generation.device.find("GPU") != std::string::npos) tell("computed by {}\n", generation.device);
    return ExitStatus::success;
  }
  print_json(options.prompt, generation);
  return ExitStatus::success;
}

}  // namespace

CommandAction declare_generate(CLI::App& app, const std::vector<std::string>& /*config_arguments*/) {
  const auto arguments = std::make_shared<GenerateArguments>();  // CLI11's options write to what the action reads
  GenerateOptions& options = arguments->options;
  app.add_option("--model,model", arguments->model, "a Hugging Face folder or a checkpoint")->required();
  app.add_option("--prompt", options.prompt, "the text to continue; empty: a new document");
  app.add_option("--max-new-tokens", options.max_new_tokens, "tokens at most")->capture_default_str();
  app.add_option("--temperature", options.sampling.temperature, "0: always the likeliest token")->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k, "only the k likeliest tokens; 0: all")->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p, "only the fewest tokens whose probabilities sum up to p")
      ->capture_default_str();
  app.add_option("--device", arguments->device, "cpu | cuda: an NVIDIA GPU | auto: cuda where there is one")
      ->capture_default_str();
  app.add_option("--expert-parallel", options.expert_parallel,
                 "ranks that divide the experts: threads, or the processes of mpirun")
      ->capture_default_str();
  app.add_option("--seed", options.sampling.seed, "the same seed gives the same text")->capture_default_str();
  app.add_flag("--json", arguments->json, "prompt, text, tokens and counts as JSON");
  CLI::Option* chat =
      app.add_flag("--chat", arguments->is_chat, "talk: lines of standard input, or the prompt, are a user's messages");
  app.add_option("--chat-template", arguments->chat_template,
                 "Jinja file, chatml or llama3; default: the template in the model's folder")
      ->needs(chat);
  return [arguments] { return run_generation(*arguments); };
}

}  // namespace echelon
