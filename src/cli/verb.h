// What a verb of the program is to the command line: a name, options, and something to run. One file per verb.
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

using VerbAction = std::function<ExitStatus()>;

struct Verb {
  std::string_view name;
  std::string_view summary;
  bool takes_config = false;  // --section.key=value are for it
  /// Declares the verb's options, to be parsed before the action is run. `config_arguments`: the --section.key=value of
  /// the command line.
  VerbAction (*declare)(CLI::App& app, const std::vector<std::string>& config_arguments) = nullptr;
};

/// All verbs, in the order in which a user meets them.
[[nodiscard]] std::span<const Verb> verbs();

VerbAction declare_prepare(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_train(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_eval(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_generate(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_inspect(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_verify(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_bench(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_simulate(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_plan(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_tune(CLI::App& app, const std::vector<std::string>& config_arguments);
VerbAction declare_draw(CLI::App& app, const std::vector<std::string>& config_arguments);

}  // namespace echelon
