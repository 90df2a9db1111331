// echelon convert: a checkpoint or a Hugging Face folder to a Hugging Face folder.
#include "checkpoint/convert_model.h"

#include "cli/command.h"
#include "spec/config/run_formats.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

namespace echelon {
namespace {

struct ConvertArguments {
  std::string source, folder, dtype;
};

ExitStatus run_conversion(const ConvertArguments& arguments) {
  require(!arguments.source.empty() && !arguments.folder.empty(), "a folder's name is empty; convert needs two");
  std::optional<DType> dtype;
  if (!arguments.dtype.empty()) dtype = parse_training_dtype("--dtype", arguments.dtype);
  convert_model(arguments.source, arguments.folder, dtype);
  fmt::print("model: {}\n", arguments.folder);
  return ExitStatus::success;
}

}  // namespace

CommandAction declare_convert(CLI::App& app, const std::vector<std::string>& /*config_arguments*/) {
  const auto arguments = std::make_shared<ConvertArguments>();  // CLI11's options write to what the action reads
  app.add_option("source", arguments->source,
                 "a step's folder, such as out/checkpoint/step-100, or a Hugging Face folder")
      ->required();
  app.add_option("model", arguments->folder, "the Hugging Face folder that is made")->required();
  app.add_option("--dtype", arguments->dtype,
                 "of the weights; without it, that of the folder or training.dtype of the run");
  return [arguments] { return run_conversion(*arguments); };
}

}  // namespace echelon
