#include "cli/cli.h"

#include "base/text/printable.h"
#include "base/text/similar.h"
#include "base/text/tell.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "comm/launch/run_ranks.h"
#include "spec/config/config_keys.h"
#include "spec/config/config_reader.h"
#include "spec/config/key_words.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <thread>

namespace echelon {
namespace {

struct DeclaredCommand {
  const Command* command;
  CLI::App* app;
  CommandAction action;
};

void require_known_command(const std::vector<std::string>& arguments) {
  std::vector<std::string_view> names;
  for (const Command& command : commands()) names.push_back(command.name);
  const std::string& first = arguments.front();
  const auto is_in = [&](std::span<const std::string_view> list) {
    return std::find(list.begin(), list.end(), first) != list.end();
  };
  constexpr std::string_view options[] = {"--help", "-h", "--version"};
  require(!first.starts_with('-') || is_in(options), "there is no option {} before a command; did you mean {}?", first,
          closest_name(first, options));
  const bool is_known = is_in(names);
  names.emplace_back("--help");
  require(first.starts_with('-') || is_known, "there is no command '{}'; did you mean {}?", first,
          closest_name(first, names));
}

/// The command's own option for a key or for the name of an option, such as --global-batch-size; else the key's.
std::string option_for(std::string_view meaning, const DeclaredCommand& declared) {
  std::string own = "--" + std::string(meaning.substr(meaning.rfind('.') + 1));
  std::replace(own.begin(), own.end(), '_', '-');
  if (declared.app->get_option_no_throw(own) != nullptr) return own;
  const bool is_key = meaning.find('.') != std::string_view::npos;
  return is_key && declared.command->takes_config ? "--" + std::string(meaning) : "";
}

// The keys of a config are candidates by their last part, unless the name has a dot: "--steps" is likely to mean
// "--training.steps".
std::string similar_option(const std::string& option, const DeclaredCommand& declared) {
  const bool is_whole_key = option.find('.') != std::string::npos;
  std::vector<std::string> names, meanings;
  for (const CLI::Option* known : declared.app->get_options())
    for (const std::string& name : known->get_lnames()) {
      names.push_back(name);
      meanings.push_back("--" + name);
    }
  for (const ConfigKey& key : config_keys()) {
    if (!declared.command->takes_config) break;
    if (!is_there(key)) continue;
    names.emplace_back(is_whole_key ? key.name : key.name.substr(key.name.find('.') + 1));
    meanings.push_back("--" + std::string(key.name));
  }
  const std::string closest = similar(option.substr(std::min(option.size(), option.find_first_not_of('-'))),
                                      std::vector<std::string_view>(names.begin(), names.end()));
  if (closest.empty()) return "";
  return meanings[static_cast<std::size_t>(std::find(names.begin(), names.end(), closest) - names.begin())];
}

/// The end of a sentence about an unknown option: first by the field's terms, then by spelling.
std::string hint_for_option(const std::string& option, const DeclaredCommand& declared) {
  const FieldWord* word = find_field_word(option);
  if (word != nullptr && word->meaning.empty()) return fmt::format("; {}", word->not_here);
  std::string meant = word != nullptr ? option_for(word->meaning, declared) : "";
  if (meant.empty()) meant = similar_option(option, declared);
  return meant.empty() ? fmt::format("; see echelon {} --help", declared.command->name)
                       : fmt::format("; did you mean {}?", meant);
}

void require_nothing_left(const DeclaredCommand& declared, const std::vector<std::string>& config_arguments) {
  require(declared.command->takes_config || config_arguments.empty(),
          "echelon {} takes no key of a config, but {} is given{}; see echelon {} --help", declared.command->name,
          config_arguments.empty() ? "" : config_arguments.front(), declared.command->why_no_config,
          declared.command->name);
  const std::vector<std::string> left = declared.app->remaining();
  if (left.empty()) return;
  const std::string& argument = left.front();
  require(argument.starts_with('-'), "echelon {} does not take '{}'; see echelon {} --help", declared.command->name,
          argument, declared.command->name);
  const std::string option = argument.substr(0, argument.find('='));
  throw Error(fmt::format("echelon {} has no option {}{}", declared.command->name, argument,
                          hint_for_option(option, declared)));
}

/// Each process would do all of the command. A container may have torchrun's variables whatever it runs.
void require_one_process(const Command& command) {
  if (command.runs_in_processes) return;
  const auto launched = launch_environment();
  require(!launched || launched->size == 1 || launched->source == LaunchSource::torchrun,
          "echelon {} runs in one process, but {} started {} (use 1)", command.name,
          launched ? name_of(launched->source) : "", launched ? launched->size : 1);
}

ExitStatus run(std::vector<std::string> arguments) {
  if (arguments.empty()) arguments.emplace_back("--help");
  require_known_command(arguments);
  const std::vector<std::string> config_arguments = take_config_arguments(arguments);

  CLI::App app("Echelon trains transformer language models on many devices.", "echelon");
  app.set_version_flag("--version", ECHELON_VERSION);
  app.footer("echelon COMMAND --help lists the options of a command.");
  std::vector<DeclaredCommand> declared;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary))->allow_extras();
    if (command.takes_config)
      sub->footer("Keys of the config, as [section] key in TOML or --section.key=value here:\n\n" + config_help());
    declared.push_back({&command, sub, command.declare(*sub, config_arguments)});
  }

  for (const DeclaredCommand& candidate : declared)
    if (candidate.command->name == arguments.front()) arguments = with_values_apart(*candidate.app, arguments);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes arguments in reverse order
    app.parse(arguments);
  } catch (const CLI::Success& help) {  // --help, --version
    app.exit(help);
    return ExitStatus::success;
  } catch (const CLI::ExcludesError& error) {
    for (const DeclaredCommand& candidate : declared)
      if (candidate.app->parsed()) throw Error(with_values(*candidate.app, error));
    throw Error(error.what());
  } catch (const CLI::ParseError& error) {
    throw Error(error.what());
  }
  for (const DeclaredCommand& candidate : declared) {
    if (!candidate.app->parsed()) continue;
    require_nothing_left(candidate, config_arguments);
    require_files_apart(*candidate.app, config_arguments);
    require_one_process(*candidate.command);
    return candidate.action();
  }
  throw Error("no command is given; echelon --help lists them");
}

// All processes of a job usually meet the same error. The launcher ends the others after the first one fails, so they
// wait for that.
std::string job_rank() {
  using namespace std::chrono_literals;
  try {
    const auto launched = launch_environment();
    if (!launched || launched->rank == 0) return "";
    std::this_thread::sleep_for(3s);
    return fmt::format("rank {}: ", launched->rank);
  } catch (const Error&) {  // an error in the variables themselves
    return "";
  }
}

// The sentence may quote arbitrary bytes.
int failed(std::string sentence, ExitStatus status) {
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  tell("echelon: {}{}\n", job_rank(), printable(sentence));
  end_job_before_run(status);
  return static_cast<int>(status);
}

}  // namespace

int run_cli(const std::vector<std::string>& arguments) noexcept {
  try {
    keep_standard_files_open();
    end_on_interrupt();
    ignore_file_size_signal();
    const ExitStatus status = run(arguments);
    require_output_written();
    return static_cast<int>(status);
  } catch (const Error& error) {
    return failed(error.what(), error.status() == ExitStatus::interrupted ? status_of_interrupt() : error.status());
  } catch (const std::bad_alloc&) {
    return failed("out of memory: make the model, training.micro_batch_size or training.seq_len smaller",
                  ExitStatus::failure);
  } catch (const std::filesystem::filesystem_error& error) {
    return failed(fmt::format("'{}' cannot be used: {}", error.path1().string(), error.code().message()),
                  ExitStatus::bad_input);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) return failed(error.what(), ExitStatus::failure);
    return failed(
        "the system has no memory or no room for another thread (ulimit -v, ulimit -u): make training.num_threads "
        "smaller",
        ExitStatus::failure);
  } catch (const std::exception& error) {
    return failed(fmt::format("internal error: {}", error.what()), ExitStatus::failure);
  }
}

}  // namespace echelon
