// echelon prepare: files, folders or JSONL to a tokenizer and token files.
#include "data/prepare.h"

#include "base/error.h"
#include "base/text/counted.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace echelon {
namespace {

struct PrepareArguments {
  PrepareOptions options;
  bool no_separator = false;
  bool json = false;
};

std::string_view name_of(PrepareStage stage) {
  switch (stage) {
    case PrepareStage::training_tokenizer: return "learning the tokenizer";
    case PrepareStage::encoding: return "encoding";
  }
  return "?";
}

// Checks for an interrupt at every document.
PrepareProgress unless_interrupted(PrepareProgress progress) {
  return [progress = std::move(progress), &requests = watch_for_requests()](PrepareStage stage, std::int64_t done,
                                                                            std::int64_t total) {
    if (ends_run(requests.end)) throw Error("prepare was interrupted; nothing was written", ExitStatus::interrupted);
    if (progress) progress(stage, done, total);
  };
}

// On a terminal one line that is redrawn, in a log one line per stage.
PrepareProgress progress_of(ProgressStyle style) {
  return [style, last = std::pair(PrepareStage{}, std::int64_t{-1})](PrepareStage stage, std::int64_t done,
                                                                     std::int64_t total) mutable {
    const std::int64_t percent = total > 0 ? 100 * done / total : 100;
    const bool is_new = last.second < 0 || last.first != stage;
    const bool is_drawn = style == ProgressStyle::terminal ? std::pair(stage, percent) != last : is_new;
    last = {stage, percent};
    if (!is_drawn) return;
    if (style == ProgressStyle::terminal)
      fmt::print("\r\x1b[K{} {}%", name_of(stage), percent);
    else
      fmt::print("{} ({:.1f} MB)\n", name_of(stage), static_cast<double>(total) / 1e6);
    std::fflush(stdout);
  };
}

nlohmann::ordered_json to_json(const SplitCounts& counts) {
  return {{"num_documents", counts.num_documents}, {"num_bytes", counts.num_bytes}, {"num_tokens", counts.num_tokens}};
}

void print_split(std::string_view name, const SplitCounts& counts) {
  fmt::print("{}: {}, {:.1f} MB, {}\n", name, counted(counts.num_documents, "document"),
             static_cast<double>(counts.num_bytes) / 1e6, counted(counts.num_tokens, "token"));
}

void print_result(const PrepareResult& result, const std::string& output) {
  fmt::print("{}: {}{}, vocabulary of {} tokens{}\n", output, counted(result.num_files, "file"),
             result.num_skipped_files > 0 ? fmt::format(" ({} skipped, not text)", result.num_skipped_files) : "",
             result.vocab_size, result.is_reused ? "; it was there already" : "");
  if (result.num_control_as_text > 0)
    fmt::print("{} in the text {} text (--parse-special changes that)\n",
               counted(result.num_control_as_text, "control token"), result.num_control_as_text == 1 ? "is" : "are");
  if (!result.chat_format.empty())
    fmt::print("conversations in {}; {} of them too long{}\n", result.chat_format, result.num_too_long,
               result.num_untrained > 0 ? fmt::format(", of which {} {} left out: nothing to train on was left",
                                                      result.num_untrained, result.num_untrained == 1 ? "was" : "were")
                                        : "");
  print_split("train", result.train);
  print_split("validation", result.validation);
  if (result.validation.num_tokens > 0)
    fmt::print("unigram entropy of the validation text: {:.4f} nats per token\n", result.validation_entropy);
}

ExitStatus run_preparation(PrepareArguments arguments) {
  PrepareOptions& options = arguments.options;
  options.appends_end_of_document = !arguments.no_separator;
  const ProgressStyle style = progress_style();
  const PrepareResult result =
      prepare(options, unless_interrupted(arguments.json ? PrepareProgress() : progress_of(style)));
  if (arguments.json) {
    nlohmann::ordered_json json = {{"is_reused", result.is_reused},
                                   {"vocab_size", result.vocab_size},
                                   {"num_files", result.num_files},
                                   {"num_skipped_files", result.num_skipped_files},
                                   {"num_control_as_text", result.num_control_as_text},
                                   {"train", to_json(result.train)},
                                   {"validation", to_json(result.validation)},
                                   {"validation_entropy", result.validation_entropy}};
    if (options.chat.is_on)
      json["chats"] = {{"format", result.chat_format},
                       {"num_too_long", result.num_too_long},
                       {"num_untrained", result.num_untrained}};
    fmt::print("{}\n", json.dump());
    return ExitStatus::success;
  }
  if (style == ProgressStyle::terminal) fmt::print("\r\x1b[K");
  print_result(result, options.output);
  return ExitStatus::success;
}

/// An option that takes the name of a choice; the first one is the default.
template <class Choice>
CLI::Option* add_choice(CLI::App& app, const std::string& option, const std::string& help, Choice& choice,
                        const std::array<std::string_view, 3>& names) {
  const auto take = [option, names, &choice](const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    require(found != names.end(), "{}={} is not one of {}; did you mean {}?", option, name, fmt::join(names, ", "),
            closest_name(name, names));
    choice = static_cast<Choice>(found - names.begin());
  };
  return app.add_option_function<std::string>(option, take, help)->option_text(fmt::format("NAME={}", names.front()));
}

void declare_chat(CLI::App& app, ChatOptions& chat) {
  CLI::Option* const is_on =
      app.add_flag("--chat", chat.is_on, "lines of JSON are conversations; loss falls on what assistants wrote");
  for (const char* of_text : {"--text-key", "--separator", "--template", "--parse-special", "--no-separator"})
    is_on->excludes(app.get_option(of_text));
  app.add_option("--chat-template", chat.template_name,
                 "Jinja file, chatml or llama3; default: the template in the tokenizer's folder")
      ->needs(is_on);
  add_choice(app, "--train-on", "assistant, last (only the last answer) or all", chat.train_on,
             {"assistant", "last", "all"})
      ->needs(is_on);
  CLI::Option* const max_tokens = app.add_option("--max-tokens", chat.max_tokens, "of a conversation; 0: any")
                                      ->check(in_range(0, 2147483647))
                                      ->capture_default_str()
                                      ->needs(is_on);
  add_choice(app, "--too-long", "refuse, truncate or drop conversations of more than --max-tokens", chat.too_long,
             {"refuse", "truncate", "drop"})
      ->needs(is_on)
      ->needs(max_tokens);
}

}  // namespace

CommandAction declare_prepare(CLI::App& app, const std::vector<std::string>& /*config_arguments*/) {
  const auto arguments = std::make_shared<PrepareArguments>();  // CLI11's options write to what the action reads
  PrepareOptions& options = arguments->options;
  app.add_option("--input,input", options.corpus.inputs,
                 "files, folders and globs of text; .jsonl files hold one document per line")
      ->required();
  app.add_option("--output", options.output, "folder for tokenizer.json, train.{bin,idx} and validation.{bin,idx}")
      ->required();
  app.add_option("--glob", options.corpus.globs,
                 "names of the files to take from folders, such as '*.h'; '*.': names without a dot")
      ->allow_extra_args(false);
  CLI::Option* const tokenizer = app.add_option(
      "--tokenizer", options.tokenizer,
      "tokenizer.json, vocab.json (with merges.txt), SentencePiece's or tiktoken's file to use; without one, "
      "it is learned");
  app.add_option("--pattern", options.pattern,
                 "that splits text for tiktoken's file: gpt2, cl100k, o200k, llama3, qwen")
      ->needs(tokenizer);
  app.add_option("--vocab-size", options.vocab_size, "tokens of the tokenizer that is learned")
      ->capture_default_str()
      ->excludes(tokenizer);
  app.add_option("--min-frequency", options.min_frequency, "of the pairs that a learned tokenizer merges")
      ->capture_default_str()
      ->excludes(tokenizer);
  app.add_option("--training-sample-bytes", options.training_sample_bytes, "text that the tokenizer is learned from")
      ->capture_default_str()
      ->excludes(tokenizer);
  app.add_option("--validation-fraction", options.corpus.validation_fraction,
                 "of the text, by whole files where there are many")
      ->capture_default_str();
  app.add_option("--max-bytes", options.corpus.max_bytes, "draw files until they have so many bytes; 0: all")
      ->capture_default_str();
  app.add_option("--text-key", options.corpus.text_key, "of the objects in .jsonl files")->capture_default_str();
  app.add_option("--seed", options.corpus.seed, "of what is drawn: the split, the sample")->capture_default_str();
  CLI::Option* const separator = app.add_option(
      "--separator", options.separator, "the token between documents; default: the tokenizer's end of a sequence");
  app.add_flag("--template", options.adds_template,
               "put around a document what the tokenizer's template does, and no separator")
      ->needs(tokenizer)
      ->excludes(separator);
  app.add_flag("--parse-special", options.parses_special, "control tokens in the text are those tokens, not text");
  app.add_option("--threads", options.num_threads, "that encode; 0: one for each core")->capture_default_str();
  app.add_flag("--no-separator", arguments->no_separator, "put no token between documents")->excludes(separator);
  declare_chat(app, options.chat);
  app.add_flag("--json", arguments->json, "the counts as JSON");
  return [arguments] { return run_preparation(*arguments); };
}

}  // namespace echelon
