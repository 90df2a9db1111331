#include "cli/program.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace echelon {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    read_end = ends[0], write_end = ends[1];
  }
};

// False at the end of the stream.
bool read_some(int file, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t count = read(file, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0;
}

using Interrupt = std::function<void(pid_t child)>;

Outcome run(const std::vector<std::string>& command, const std::string& when, const Interrupt& interrupt,
            const std::string& output = "") {
  const Pipe out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  if (!output.empty()) posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, err.write_end, STDERR_FILENO);

  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  EXPECT_EQ(posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ), 0) << command[0];
  posix_spawn_file_actions_destroy(&actions);
  close(out.write_end);
  close(err.write_end);

  Outcome outcome;
  bool interrupted = when.empty();
  std::array<pollfd, 2> files = {{{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}}};
  while (files[0].fd >= 0 || files[1].fd >= 0) {
    poll(files.data(), files.size(), -1);
    if (files[0].revents != 0 && !read_some(files[0].fd, outcome.out)) files[0].fd = -1;
    if (files[1].revents != 0 && !read_some(files[1].fd, outcome.err)) files[1].fd = -1;
    if (!interrupted && outcome.out.find(when) != std::string::npos) {
      interrupt(child);
      interrupted = true;
    }
  }
  close(out.read_end);
  close(err.read_end);
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  outcome.peak_memory_bytes = usage.ru_maxrss * 1024;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::vector<std::string> echelon_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {std::string(ECHELON_BINARY_DIR) + "/echelon"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace

Outcome run_echelon(const std::vector<std::string>& arguments) { return run(echelon_command(arguments), "", {}); }

Outcome run_echelon_processes(int num_processes, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                                      std::to_string(num_processes)};
  for (const std::string& word : echelon_command(arguments)) command.push_back(word);
  return run(command, "", {});
}

Outcome run_echelon_into(const std::string& path, const std::vector<std::string>& arguments) {
  return run(echelon_command(arguments), "", {}, path);
}

Outcome interrupt_echelon(const std::vector<std::string>& arguments, const std::string& when, int signal) {
  return run(echelon_command(arguments), when, [=](pid_t child) { kill(child, signal); });
}

Outcome run_command(const std::vector<std::string>& command, const Watch& watch) {
  return run(command, watch.when, [&](pid_t) { watch.then(); });
}

}  // namespace echelon
