// A command of the program: a name, options and an action. One file per command.
#pragma once

#include "base/error.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
}

namespace echelon {

using CommandAction = std::function<ExitStatus()>;

struct Command {
  std::string_view name;
  std::string_view summary;
  bool takes_config = false;            // it accepts --section.key=value
  bool runs_in_processes = false;       // that mpirun or srun start, each of which is a rank
  std::string_view why_no_config = "";  // in a sentence about a key of a config
  /// Declares the command's options, which are parsed before the action runs. `config_arguments`: the
  /// --section.key=value arguments of the command line.
  CommandAction (*declare)(CLI::App& app, const std::vector<std::string>& config_arguments) = nullptr;
};

/// All commands, in the order in which a user needs them.
[[nodiscard]] std::span<const Command> commands();

CommandAction declare_prepare(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_train(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_eval(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_generate(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_convert(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_inspect(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_verify(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_bench(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_simulate(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_plan(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_tune(CLI::App& app, const std::vector<std::string>& config_arguments);
CommandAction declare_draw(CLI::App& app, const std::vector<std::string>& config_arguments);

}  // namespace echelon
