#include "comm/launch_environment.h"

#include "base/error.h"

#include <charconv>
#include <cstdlib>

namespace echelon {
namespace {

/// The variables of one launcher; null: it has none.
struct Names {
  LaunchSource source;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names launcher_names[] = {
    {LaunchSource::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {LaunchSource::openmpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {LaunchSource::pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {LaunchSource::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
};

std::optional<std::string_view> text_of(const GetVariable& get, const char* name) {
  const char* text = name == nullptr ? nullptr : get(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return text;
}

constexpr int most_processes = 1 << 24;

std::optional<int> number_of(const GetVariable& get, const char* name) {
  const auto text = text_of(get, name);
  if (!text) return std::nullopt;
  int number = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  const bool is_number =
      error == std::errc() && end == text->data() + text->size() && number >= 0 && number <= most_processes;
  require(is_number, "the environment variable {} = '{}' is not a whole number from 0 to {}, as a launcher would set",
          name, *text, most_processes);
  return number;
}

/// A place among `size`, where a launcher that gives one must give both.
void check_place(const char* rank_name, std::optional<int> rank, const char* size_name, std::optional<int> size) {
  require(rank.has_value() && size.has_value(),
          "the environment variable {} = {} is set but {} is not; set or unset both", rank ? rank_name : size_name,
          rank ? *rank : *size, rank ? size_name : rank_name);
  require(*rank < *size, "the environment variables {} = {} and {} = {} contradict each other: ranks count from 0",
          rank_name, *rank, size_name, *size);
}

/// Tasks of node `index` in Slurm's short form, such as "2(x3),1" for 2, 2, 2, 1.
std::optional<int> tasks_of_node(std::string_view counts, int index) {
  const auto number = [&]() -> std::optional<int> {
    int value = 0;
    const auto [end, error] = std::from_chars(counts.data(), counts.data() + counts.size(), value);
    if (error != std::errc() || value < 1) return std::nullopt;
    counts.remove_prefix(static_cast<std::size_t>(end - counts.data()));
    return value;
  };
  const auto skip = [&](std::string_view what) {
    const bool is_next = counts.starts_with(what);
    if (is_next) counts.remove_prefix(what.size());
    return is_next;
  };
  do {
    const auto tasks = number();
    auto times = std::optional<int>(1);
    if (tasks && skip("(x") && (!(times = number()) || !skip(")"))) return std::nullopt;
    if (!tasks || index < *times) return tasks;
    index -= *times;
  } while (skip(","));
  return std::nullopt;
}

/// Whether srun started this process as a task. The shells of sbatch and salloc are no step or one with a reserved
/// number, from 0xfffffff0 on.
bool is_slurm_task(const GetVariable& get) {
  const auto text = text_of(get, "SLURM_STEP_ID");
  if (!text || !text_of(get, "SLURM_STEP_NUM_TASKS")) return false;
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), step);
  require(error == std::errc() && end == text->data() + text->size(),
          "the environment variable SLURM_STEP_ID = '{}' is not a whole number", *text);
  return step < 0xfffffff0U;
}

std::optional<int> slurm_local_size(const GetVariable& get) {
  const auto counts = text_of(get, "SLURM_STEP_TASKS_PER_NODE");
  const auto node = number_of(get, "SLURM_NODEID");
  if (!counts || !node) return std::nullopt;
  const auto tasks = tasks_of_node(*counts, *node);
  require(tasks.has_value(),
          "the environment variable SLURM_STEP_TASKS_PER_NODE = '{}' does not give the number of tasks of node "
          "SLURM_NODEID = {} has",
          *counts, *node);
  return tasks;
}

std::optional<LaunchEnvironment> read(const GetVariable& get, const Names& names) {
  if (names.source == LaunchSource::slurm && !is_slurm_task(get)) return std::nullopt;
  const auto rank = number_of(get, names.rank), size = number_of(get, names.size);
  if (!rank && !size) return std::nullopt;
  check_place(names.rank, rank, names.size, size);
  LaunchEnvironment launched = {.rank = *rank, .size = *size, .source = names.source};
  const bool is_slurm = names.source == LaunchSource::slurm;
  launched.may_have_mpi_world = !is_slurm || text_of(get, "PMIX_RANK").has_value();
  launched.local_rank = number_of(get, names.local_rank);
  launched.local_size = is_slurm ? slurm_local_size(get) : number_of(get, names.local_size);
  const char* local_size_name = is_slurm ? "SLURM_STEP_TASKS_PER_NODE" : names.local_size;
  if (launched.local_rank && launched.local_size)
    check_place(names.local_rank, launched.local_rank, local_size_name, launched.local_size);
  require(!launched.local_size || *launched.local_size <= *size,
          "the environment variables {} = {} and {} = {} contradict each other", local_size_name,
          launched.local_size.value_or(0), names.size, *size);
  return launched;
}

/// If one launcher gives no facts about the host, another launcher with the same rank and size may.
void add_local(LaunchEnvironment& launched, const LaunchEnvironment& other) {
  if (other.rank != launched.rank || other.size != launched.size) return;
  if (!launched.local_rank) launched.local_rank = other.local_rank;
  if (!launched.local_size) launched.local_size = other.local_size;
}

/// Scripts under mpirun often export torchrun's names for other programs: with the same values the processes are those
/// of mpirun. torchrun may itself be started by mpirun or srun, once per host: its processes inherit variables about
/// torchrun.
void settle_torchrun(LaunchEnvironment& torchrun, const GetVariable& get) {
  torchrun.may_have_mpi_world = false;
  for (const Names& names : launcher_names) {
    if (names.source == LaunchSource::torchrun) continue;
    const auto other = read(get, names);
    if (!other) continue;
    const bool is_same = other->rank == torchrun.rank && other->size == torchrun.size;
    torchrun.may_have_mpi_world = is_same && other->may_have_mpi_world;
    require(is_same || text_of(get, "TORCHELASTIC_RUN_ID") || names.source == LaunchSource::slurm,
            "the environment variables RANK = {}, WORLD_SIZE = {} and {} = {}, {} = {} contradict each other; unset "
            "the former",
            torchrun.rank, torchrun.size, names.rank, other->rank, names.size, other->size);
    add_local(torchrun, *other);
    return;
  }
}

}  // namespace

std::string_view name_of(LaunchSource source) {
  switch (source) {
    case LaunchSource::torchrun: return "torchrun";
    case LaunchSource::openmpi: return "mpirun";
    case LaunchSource::pmi: return "PMI";
    case LaunchSource::slurm: return "srun";
  }
  return "";
}

std::optional<LaunchEnvironment> read_launch_environment(const GetVariable& get_variable) {
  for (const Names& names : launcher_names) {
    auto launched = read(get_variable, names);
    if (!launched) continue;
    if (names.source == LaunchSource::torchrun) settle_torchrun(*launched, get_variable);
    if (names.source == LaunchSource::pmi)  // under srun --mpi=pmi2
      if (const auto slurm = read(get_variable, launcher_names[3])) add_local(*launched, *slurm);
    return launched;
  }
  return std::nullopt;
}

void require_mpi_possible(const LaunchEnvironment& launched) {
  if (launched.may_have_mpi_world) return;
  require(launched.source != LaunchSource::slurm,
          "process {} of {} was started by srun without PMIx (PMIX_RANK is not set), by which MPI would learn of the "
          "others; start it with srun --mpi=pmix",
          launched.rank, launched.size);
  throw Error(fmt::format(
      "process {} of {} was started by torchrun (RANK, WORLD_SIZE), whose processes are not an MPI world; start it "
      "with mpirun -n {} or srun --mpi=pmix, or once without a launcher: then all ranks are threads of one machine",
      launched.rank, launched.size, launched.size));
}

std::optional<LaunchEnvironment> launch_environment() {
  return read_launch_environment([](const char* name) -> const char* { return std::getenv(name); });
}

void require_mpi_world(const LaunchEnvironment& launched, int mpi_rank, int mpi_size) {
  require_mpi_possible(launched);
  require(mpi_rank == launched.rank && mpi_size == launched.size,
          "process {} of {} ({}) is rank {} of {} to MPI: the launcher and the MPI library do not know each other; "
          "start it with the mpirun of this MPI library or "
          "with srun --mpi=pmix",
          launched.rank, launched.size, name_of(launched.source), mpi_rank, mpi_size);
}

}  // namespace echelon
