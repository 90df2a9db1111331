#include "train/save/state_saver.h"

#include "base/error.h"
#include "base/text/written_number.h"
#include "checkpoint/state/publish.h"
#include "checkpoint/state/state_names.h"
#include "checkpoint/state/step_folders.h"
#include "engine/rank_state.h"
#include "files/system_calls.h"
#include "spec/groups.h"

#include <algorithm>
#include <limits>

namespace echelon {
namespace {

/// Collective: the digests of all ranks' headers.
std::vector<Digest> gathered_digests(Comm& all, const Digest& own) {
  constexpr std::int64_t words = sizeof(Digest) / sizeof(std::int32_t);
  std::vector<Digest> digests(static_cast<std::size_t>(all.size()));
  Digest sent = own;
  all.all_gather({digests.data(), DType::int32, {words * all.size()}}, {&sent, DType::int32, {words}}).wait();
  return digests;
}

Manifest::Copy copy_of_tokenizer(const std::string& text) {
  return {std::string(checkpoint_tokenizer_name), std::ssize(text), digest_of(text)};
}

StateWrite::Clock::duration in_clock(double seconds) {
  return std::chrono::duration_cast<StateWrite::Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

std::filesystem::path checkpoint_folder(const RunConfig& config) {
  return std::filesystem::path(config.output.dir) / config.checkpoint.folder;
}

StateSaver::StateSaver(const Context& context, std::int64_t attempt, std::vector<LineageEntry> lineage)
    : context_(context),
      slices_(state_slices(context.run.model().part())),
      plan_(std::make_shared<StateFilePlan>(slices_)) {
  manifest_.attempt = attempt;
  manifest_.lineage = std::move(lineage);
}

StateSaver::~StateSaver() {
  if (work_) work_->cancel("the run has ended");
  if (thread_.joinable()) thread_.detach();
}

const SavePlan& StateSaver::files() {
  if (!files_) {
    files_.emplace(context_.blueprint);
    manifest_ = files_->manifest(manifest_.attempt, std::move(manifest_.lineage));
    manifest_.products = context_.products;
    manifest_.base = context_.base;
  }
  return *files_;
}

std::int64_t StateSaver::most_manifest_bytes() {
  (void)files();
  Manifest manifest = manifest_;
  const std::string& tokenizer = context_.blueprint.config().checkpoint.tokenizer;
  if (!tokenizer.empty()) manifest.copies = {copy_of_tokenizer(read_text(tokenizer))};
  return most_bytes_of(std::move(manifest));
}

void require_space(const std::filesystem::path& folder, std::int64_t num_bytes, std::string_view what) {
  const std::optional<std::int64_t> free = free_bytes(folder);
  if (free && *free < num_bytes)
    throw Failure(fmt::format("the disk of {} has {} free, but {} {}", folder.string(), written_bytes(*free), what,
                              written_bytes(num_bytes)));
}

std::optional<SharedFailure> StateSaver::save(const RunScalars& scalars) {
  start(scalars);
  const ModelPart& part = context_.run.model().part();
  context_.ops.publish();
  start_writing(state_sources(part, context_.ops), nullptr);
  finish();
  return failure_;
}

void StateSaver::start(const RunScalars& scalars) {
  scalars_ = scalars;
  folder_ = step_folder(checkpoint_folder(context_.blueprint.config()), scalars.step);
  begun_ = StateWrite::Clock::now();
  failure_.reset();
  if (is_publisher()) (void)files();
  phase_ = Phase::started;
}

void StateSaver::drop() { phase_ = Phase::none; }

void StateSaver::taken() {
  const ModelPart& part = context_.run.model().part();
  const std::vector<const std::byte*> copies = snapshot_copies(context_.run.memory(), part);
  std::vector<StateSource> sources = state_sources(part, context_.ops, copies);
  read_in_place_.clear();
  for (const StateSource& source : sources)
    if (copies[source.unit] == nullptr) read_in_place_.insert(source.unit);
  start_writing(std::move(sources), context_.background);
}

void StateSaver::release(const ShardedUnit& unit) {
  const std::vector<const ShardedUnit*> units = std::as_const(context_.run.model()).part().units();
  const auto index = static_cast<std::size_t>(std::ranges::find(units, &unit) - units.begin());
  if (!read_in_place_.contains(index)) return;
  const auto begin = StateWrite::Clock::now();
  if (!work_->wait_for_units(index + 1, begin + patience()))
    work_->cancel(fmt::format(
        "an update waited {} s for the disk, since checkpoint.snapshot_bytes = {} has no room for "
        "all values (use -1)",
        std::chrono::duration<double>(patience()).count(), context_.blueprint.config().checkpoint.snapshot_bytes));
  waited_seconds_ += std::chrono::duration<double>(StateWrite::Clock::now() - begin).count();
}

/// The work owns what it needs, since a disk may hold its thread for longer than this saver lives. Memory of the rank
/// is read under the eyes of `progress` alone.
void StateSaver::start_writing(std::vector<StateSource> sources, BackgroundThread* background) {
  phase_ = Phase::writing;
  background_ = background;
  header_ = std::make_shared<Digest>();
  const bool reads_host_memory =
      background != nullptr || context_.blueprint.config().training.device != DeviceChoice::cuda;
  start_work(
      [sources = std::move(sources), plan = plan_, header = header_, folder = folder_, claim = claim_to_check(),
       space = is_publisher() ? files().num_bytes() : 0,
       name = state_file_name(manifest_.attempt, context_.host.rank())](StateWrite& progress) {
        if (claim != nullptr) claim->require_held();
        make_folder_in_parent(folder);  // a run whose output was moved away makes no second one
        if (kind_of(folder) != NameKind::folder) throw Failure(fmt::format("{} is a link", folder.string()));
        require_space(folder, space, "a checkpoint has");
        if (sources.empty()) return;
        StateFileWriter writer(folder / name, *plan);
        for (const StateSource& source : sources) {
          progress.finished_units(source.unit);
          writer.write(
              [&](Range elements, std::byte* out) { progress.read_memory([&] { source.values(elements, out); }); });
        }
        progress.finished_units(std::numeric_limits<std::size_t>::max());
        *header = writer.finish();
        sync_folder(folder);
      },
      reads_host_memory, background);
}

void StateSaver::start_work(std::function<void(StateWrite&)> run, bool by_another_thread,
                            BackgroundThread* background) {
  work_ = std::make_shared<StateWrite>(std::move(run));
  const auto perform = [work = work_] { work->perform(); };
  if (!by_another_thread)
    perform();
  else if (background != nullptr)
    background->add(perform);
  else
    thread_ = std::thread(perform);
}

bool StateSaver::has_saved() {
  if (phase_ != Phase::writing && phase_ != Phase::publishing) return false;
  if (StateWrite::Clock::now() >= deadline()) give_up();
  return work_->is_done();
}

bool StateSaver::advance() {
  Comm& all = context_.host.comm(step_group);
  const std::optional<SharedFailure> failure = agreed_failure_of_all(all, [&] {
    if (!work_->wait_until(std::min(StateWrite::Clock::now() + patience(), deadline()))) {
      if (StateWrite::Clock::now() < deadline()) return false;
      give_up();
    }
    if (thread_.joinable()) work_->is_cancelled() ? thread_.detach() : thread_.join();
    work_->require_success();
    return true;
  });
  if (!failure && phase_ == Phase::writing) {
    start_publishing(gathered_digests(all, *header_));
    return false;
  }
  if (failure) remove_failed();
  failure_ = failure;
  seconds_ = std::chrono::duration<double>(StateWrite::Clock::now() - begun_).count();
  work_.reset();
  phase_ = Phase::none;
  return true;
}

void StateSaver::finish() {
  while (!advance()) {
  }
}

void StateSaver::give_up() {
  work_->cancel(fmt::format("the disk took more than checkpoint.timeout_seconds = {}",
                            context_.blueprint.config().checkpoint.timeout_seconds));
}

void StateSaver::start_publishing(const std::vector<Digest>& headers) {
  phase_ = Phase::publishing;
  if (!is_publisher()) return start_work([](StateWrite&) {}, false, nullptr);
  manifest_.scalars = scalars_;
  for (std::size_t f = 0; f < manifest_.files.size(); ++f)
    manifest_.files[f].header = headers[static_cast<std::size_t>(files().files()[f].rank)];
  manifest_.copies.clear();
  start_work(
      [manifest = manifest_, folder = folder_, claim = claim_to_check(),
       tokenizer = context_.blueprint.config().checkpoint.tokenizer](StateWrite& progress) mutable {
        if (claim != nullptr) claim->require_held();
        if (!tokenizer.empty()) {
          const std::string text = read_text(tokenizer);
          if (kind_of(folder / checkpoint_tokenizer_name) == NameKind::other)  // a link would be followed
            remove_file(folder / checkpoint_tokenizer_name);
          write_text(folder / checkpoint_tokenizer_name, text);
          manifest.copies.push_back(copy_of_tokenizer(text));
        }
        progress.require_wanted();
        publish_manifest(folder, manifest);
      },
      true, background_);
}

/// The folder goes when all ranks have removed their files.
void StateSaver::remove_failed() {
  SystemCalls& calls = system_calls();  // whatever fails here is litter, which the next attempt removes
  calls.unlink((folder_ / state_file_name(manifest_.attempt, context_.host.rank())).c_str());
  Comm& all = context_.host.comm(step_group);
  all.barrier().wait();
  if (is_publisher() && !find_manifest(folder_)) {
    calls.unlink((folder_ / checkpoint_tokenizer_name).c_str());
    calls.unlink((folder_ / (manifest_name(manifest_.attempt) + ".tmp")).c_str());
    calls.rmdir(folder_.c_str());
  }
}

StateWrite::Clock::time_point StateSaver::deadline() const {
  return begun_ + in_clock(context_.blueprint.config().checkpoint.timeout_seconds);
}

/// How long a rank may let the others wait.
StateWrite::Clock::duration StateSaver::patience() const {
  return in_clock(context_.blueprint.config().comm.timeout_seconds / 2);
}

}  // namespace echelon
