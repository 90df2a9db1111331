// The commands of README and of a guide run in their order and print what the page shows: the same lines in the same
// order, except for digits and for "...".
#include "cli/program.h"
#include "files/file.h"
#include "scratch_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace echelon {
namespace {

namespace fs = std::filesystem;

struct ShownCommand {
  std::string command;
  std::vector<std::string> lines;
};

std::vector<ShownCommand> commands_of(const fs::path& page) {
  std::vector<ShownCommand> commands;
  std::ifstream file(page);
  bool is_inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```"))
      is_inside = line == "```console";
    else if (is_inside && line.starts_with("$ "))
      commands.push_back({line.substr(2), {}});
    else if (is_inside)
      commands.back().lines.push_back(line);
  }
  return commands;
}

/// With # in place of each number and one blank in place of several.
std::string without_numbers(const std::string& line) {
  static const std::regex number(R"([0-9][0-9.,]*(e[+-][0-9]+)?)"), blanks(" +");
  return std::regex_replace(std::regex_replace(line, number, "#"), blanks, " ");
}

/// A prediction for a machine of the tree: its digits depend on neither clock nor processor.
bool has_equal_numbers(const std::string& command) {
  return command.find("echelon plan") != std::string::npos && command.find("--machine") != std::string::npos;
}

bool fits(const std::string& shown, const std::string& printed, bool has_equal_numbers) {
  constexpr std::string_view left_out = " ...";
  const auto compared = [&](const std::string& line) { return has_equal_numbers ? line : without_numbers(line); };
  const std::string wanted = compared(shown), actual = compared(printed);
  if (!wanted.ends_with(left_out)) return actual == wanted;
  return actual.starts_with(wanted.substr(0, wanted.size() - left_out.size()));
}

/// The commands find the files of the tree there.
fs::path scratch_tree(const std::string& of) {
  const fs::path folder = fs::path(scratch_folder()) / of;
  fs::remove_all(folder);
  fs::create_directories(folder / "build/release");
  fs::create_symlink(ECHELON_BINARY_DIR "/echelon", folder / "build/release/echelon");
  for (const char* const name : {"src", "examples", "machines"})
    fs::create_directory_symlink(fs::path(ECHELON_SOURCE_DIR) / name, folder / name);
  return folder;
}

void expect_shown(const ShownCommand& shown, const std::string& output) {
  std::istringstream printed(output);
  bool skips = false;
  for (const std::string& wanted : shown.lines) {
    if (wanted == "...") {
      skips = true;
      continue;
    }
    std::string line;
    bool is_found = false;
    while (!is_found && std::getline(printed, line)) {
      is_found = fits(wanted, line, has_equal_numbers(shown.command));
      ASSERT_TRUE(is_found || skips) << shown.command << "\nprints: " << line << "\nthe page shows: " << wanted;
    }
    ASSERT_TRUE(is_found) << shown.command << " does not print: " << wanted << "\nbut:\n" << output;
    skips = false;
  }
  std::string more;
  EXPECT_TRUE(skips || !std::getline(printed, more)) << shown.command << " prints more: " << more;
}

/// Returns the folder in which the page's commands ran.
fs::path expect_commands(const char* page, const std::string& name, std::size_t least) {
  const fs::path folder = scratch_tree(name);
  const auto commands = commands_of(fs::path(ECHELON_SOURCE_DIR) / page);
  EXPECT_GE(commands.size(), least);
  for (const ShownCommand& shown : commands) {
    const Outcome outcome = run_command({"env", "-C", folder.string(), "bash", "-c", shown.command + " 2>&1"});
    EXPECT_EQ(outcome.status, 0) << shown.command << "\n" << outcome.out;
    expect_shown(shown, outcome.out);
  }
  return folder;
}

TEST(Readme, ShowsWhatItsCommandsPrint) { fs::remove_all(expect_commands("README.md", "readme", 4)); }

// From a folder and conversations to a folder that says what it was trained to say, with the files of the first.
TEST(FineTune, ShowsWhatItsCommandsPrint) {
  const fs::path folder = expect_commands("docs/guides/fine-tune.md", "fine-tune", 6);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    EXPECT_EQ(read_text(folder / "tiny/model" / name), read_text(folder / "tiny/base" / name)) << name;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace echelon
