#include "hosts/job.h"
#include "scratch_folder.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace echelon {
namespace {

namespace fs = std::filesystem;

const std::string tree = ECHELON_SOURCE_DIR, program = std::string(ECHELON_BINARY_DIR) + "/echelon",
                  two_hosts = tree + "/tests/hosts/two_hosts";

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += " '" + word + "'";
  return line;
}

}  // namespace

void Jobs::SetUp() {
  folder_ = scratch_folder() + "/echelon-" + std::to_string(getpid());
  fs::remove_all(folder_);
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}) setenv(name, "1", 1);
  setenv("OMP_NUM_THREADS", "1", 1);  // the hosts share this machine's cores
  const Outcome outcome = run_echelon({"prepare", tree + "/src/spec", "--output", folder_ + "/corpus",
                                       "--vocab-size=300", "--training-sample-bytes=20000"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
}

void Jobs::TearDown() {
  // mpirun does not wait for those that it kills.
  for (int tries = 0; tries < 100 && !processes(-1).empty(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(processes(-1).empty());
  fs::remove_all(folder_);
}

std::string Jobs::obstacle(int num_hosts) {
  if (run_command({"sh", "-c", "command -v mpirun"}).status != 0) return "there is no mpirun (Debian: openmpi-bin)";
  if (run_command({"sh", "-c", "ldd '" + program + "' | grep -q libmpi"}).status != 0)
    return "echelon was built without MPI";
  return num_hosts == 1 ? "" : run_command({two_hosts, "--check"}).out;
}

std::vector<std::string> Jobs::train(const std::vector<std::string>& keys) const {
  std::vector<std::string> arguments = {"train",
                                        "--model.preset=llama-1m",
                                        "--model.vocab_size=300",
                                        "--model.num_hidden_layers=2",
                                        "--training.steps=3",
                                        "--training.seq_len=32",
                                        "--training.global_batch_size=4",
                                        "--checkpoint.enable=false",
                                        "--data.path=" + folder_ + "/corpus/train",
                                        "--output.dir=" + folder_ + "/out"};
  arguments.insert(arguments.end(), keys.begin(), keys.end());
  return arguments;
}

Outcome Jobs::run(const Job& job, const Watch& watch) const {
  fs::remove_all(folder_ + "/out");
  std::string line = "mpirun --oversubscribe -n " + std::to_string(job.num_processes) + " " + job.placing;
  if (job.num_hosts == 2) {
    const int on_first = job.num_on_first > 0 ? job.num_on_first : job.num_processes / 2;
    line += " --host host1:" + std::to_string(on_first) + ",host2:" + std::to_string(job.num_processes - on_first) +
            " --mca plm_rsh_agent $HOSTS_AGENT";
  }
  if (!job.key_of_last.empty())
    line += " sh -c '[ $OMPI_COMM_WORLD_RANK -lt " + std::to_string(job.num_processes - 1) + " ] || set -- \"$@\" " +
            job.key_of_last + "; exec \"$@\"' sh";
  line += " " + program + quoted(train(job.keys));
  std::string command = line;
  if (job.num_hosts == 2) {
    std::ofstream(folder_ + "/job") << line << "; status=$?\ncat /sys/class/net/eth0/statistics/tx_bytes >" << folder_
                                    << "/bytes\nexit $status\n";
    command = two_hosts + " " + job.link + " bash " + folder_ + "/job";
  }
  // Neither a job that hangs nor a test that is killed leaves anything behind.
  const std::string die = "setpriv --pdeathsig KILL ";
  return run_command({"bash", "-c", "exec " + die + "timeout -k 5 240 " + die + command}, watch);
}

Outcome Jobs::run_on_threads(const std::vector<std::string>& keys) const {
  fs::remove_all(folder_ + "/out");
  return run_echelon(train(keys));
}

std::vector<int> Jobs::processes(int rank) const {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string arguments = text_of(entry.path() / "cmdline"),
                      environment = '\0' + text_of(entry.path() / "environ");
    if (!arguments.starts_with(program) || arguments.find(folder_) == std::string::npos) continue;
    const std::string variable = '\0' + std::string("OMPI_COMM_WORLD_RANK=") + std::to_string(rank) + '\0';
    if (rank < 0 || environment.find(variable) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

std::vector<nlohmann::json> Jobs::metrics() const {
  std::vector<nlohmann::json> objects;
  std::ifstream lines(folder_ + "/out/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  return objects;
}

std::int64_t Jobs::bytes_on_link() const { return std::stoll(text_of(folder_ + "/bytes")); }

}  // namespace echelon
