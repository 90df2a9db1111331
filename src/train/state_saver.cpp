#include "train/state_saver.h"

#include "base/error.h"
#include "checkpoint/hf/weight_names.h"
#include "checkpoint/state/publish.h"
#include "checkpoint/state/state_names.h"
#include "checkpoint/state/step_folders.h"
#include "engine/rank_state.h"
#include "files/system_calls.h"
#include "spec/config/config_reader.h"
#include "spec/groups.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

namespace echelon {
namespace {

/// The parameters of a file as ranges of their places in the list.
std::vector<Range> parameters_of(const std::vector<StateSlice>& slices,
                                 const std::map<std::string, std::int64_t>& number_of) {
  std::vector<std::int64_t> numbers;
  for (const StateSlice& slice : slices) numbers.push_back(number_of.at(slice.parameter));
  std::ranges::sort(numbers);
  std::vector<Range> ranges;
  for (const std::int64_t number : numbers) {
    if (!ranges.empty() && number < ranges.back().first + ranges.back().count) continue;
    if (!ranges.empty() && number == ranges.back().first + ranges.back().count)
      ++ranges.back().count;
    else
      ranges.push_back({number, 1});
  }
  return ranges;
}

/// Collective: the digests of all ranks' headers.
std::vector<Digest> gathered_digests(Comm& all, const Digest& own) {
  constexpr std::int64_t words = sizeof(Digest) / sizeof(std::int32_t);
  std::vector<Digest> digests(static_cast<std::size_t>(all.size()));
  Digest sent = own;
  all.all_gather({digests.data(), DType::int32, {words * all.size()}}, {&sent, DType::int32, {words}}).wait();
  return digests;
}

}  // namespace

std::filesystem::path checkpoint_folder(const RunConfig& config) {
  return std::filesystem::path(config.output.dir) / config.checkpoint.folder;
}

StateSaver::StateSaver(const Context& context, std::int64_t attempt, std::vector<LineageEntry> lineage)
    : context_(context), slices_(state_slices(context.run.model().part())), plan_(slices_) {
  manifest_.attempt = attempt;
  manifest_.lineage = std::move(lineage);
}

std::int64_t StateSaver::Files::num_bytes() const {
  std::int64_t sum = 0;
  for (const Manifest::File& file : planned) sum += file.num_bytes;
  return sum;
}

std::int64_t StateSaver::Files::most_bytes() const {
  std::int64_t most = 0;
  for (const Manifest::File& file : planned) most = std::max(most, file.num_bytes);
  return most;
}

const StateSaver::Files& StateSaver::files() {
  if (files_.planned.empty()) plan_files();
  return files_;
}

/// What each rank writes is computed here as on that rank, so no rank needs to tell.
void StateSaver::plan_files() {
  const RunConfig& config = context_.blueprint.config();
  manifest_.config = to_toml(config);
  std::map<std::string, std::int64_t> number_of;
  for (const NamedShape& parameter : global_parameters(config.model)) {
    number_of[parameter.name] = std::ssize(manifest_.parameters);
    manifest_.parameters.push_back({parameter.name, parameter.sizes});
  }
  for (int rank = 0; rank < context_.blueprint.mesh().num_ranks(); ++rank) {
    const std::vector<StateSlice> slices = state_slices(make_model_part(config, context_.blueprint.schedule(), rank));
    if (slices.empty()) continue;
    files_.planned.push_back({.name = state_file_name(manifest_.attempt, rank),
                              .num_bytes = StateFilePlan(slices).num_bytes(),
                              .header = {},
                              .parameters = parameters_of(slices, number_of)});
    files_.ranks.push_back(rank);
    for (const StateSlice& slice : slices)
      if (std::ranges::find(manifest_.states, slice.state, &decltype(manifest_.states)::value_type::first) ==
          manifest_.states.end())
        manifest_.states.emplace_back(slice.state, slice.dtype);
  }
}

void require_space(const std::filesystem::path& folder, std::int64_t num_bytes, std::string_view what) {
  const std::optional<std::int64_t> free = free_bytes(folder);
  if (free && *free < num_bytes)
    throw Failure(fmt::format("the disk of {} has {:.3g} GB free, but {} {:.3g} GB", folder.string(),
                              static_cast<double>(*free) / 1e9, what, static_cast<double>(num_bytes) / 1e9));
}

std::optional<SharedFailure> StateSaver::save(const RunScalars& scalars) {
  Comm& all = context_.host.comm(step_group);
  const std::filesystem::path folder = step_folder(checkpoint_folder(context_.blueprint.config()), scalars.step);
  const bool is_publisher = all.rank() == 0;
  Digest header;
  const RunClaim* claim = is_publisher ? context_.claim : nullptr;
  std::optional<SharedFailure> failure = agreed_failure(all, [&] {
    if (claim != nullptr) claim->require_held();
    make_folder_in_parent(folder);  // a run whose output was moved away makes no second one
    if (is_publisher) require_space(folder, files().num_bytes(), "a checkpoint has");
    if (slices_.empty()) return;
    StateFileWriter writer(folder / state_file_name(manifest_.attempt, context_.host.rank()), plan_);
    save_state(context_.run.model().part(), writer, context_.ops);
    header = writer.finish();
    sync_folder(folder);
  });
  if (!failure) {
    const std::vector<Digest> headers = gathered_digests(all, header);
    failure = agreed_failure(all, [&] {
      if (claim != nullptr) claim->require_held();
      if (is_publisher) publish(folder, scalars, headers);
    });
  }
  if (failure) remove_failed(folder);
  return failure;
}

void StateSaver::publish(const std::filesystem::path& folder, const RunScalars& scalars,
                         const std::vector<Digest>& headers) {
  manifest_.scalars = scalars;
  manifest_.files = files_.planned;
  for (std::size_t f = 0; f < manifest_.files.size(); ++f)
    manifest_.files[f].header = headers[static_cast<std::size_t>(files_.ranks[f])];
  manifest_.copies.clear();
  if (const std::string& tokenizer = context_.blueprint.config().checkpoint.tokenizer; !tokenizer.empty()) {
    const std::string text = read_text(tokenizer);
    write_text(folder / checkpoint_tokenizer_name, text);
    manifest_.copies.push_back({std::string(checkpoint_tokenizer_name), std::ssize(text), digest_of(text)});
  }
  publish_manifest(folder, manifest_);
}

/// The folder goes when all ranks have removed their files.
void StateSaver::remove_failed(const std::filesystem::path& folder) {
  SystemCalls& calls = system_calls();  // whatever fails here is litter, which the next attempt removes
  calls.unlink((folder / state_file_name(manifest_.attempt, context_.host.rank())).c_str());
  Comm& all = context_.host.comm(step_group);
  all.barrier().wait();
  if (all.rank() == 0 && !find_manifest(folder)) {
    calls.unlink((folder / checkpoint_tokenizer_name).c_str());
    calls.unlink((folder / (manifest_name(manifest_.attempt) + ".tmp")).c_str());
    calls.rmdir(folder.c_str());
  }
}

}  // namespace echelon
