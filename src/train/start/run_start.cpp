#include "train/start/run_start.h"

#include "base/error.h"
#include "blueprint/save_plan.h"
#include "checkpoint/state/saved_config.h"
#include "engine/rank_state.h"
#include "spec/config/config_changes.h"
#include "spec/config/config_reader.h"
#include "spec/groups.h"
#include "train/data/data_fingerprint.h"

#include <algorithm>
#include <array>

namespace echelon {
namespace {

/// Whether every value of a type is one of the other type.
bool fits(DType value, DType type) {
  if (value == type || type == DType::float64) return true;
  return type == DType::float32 && (value == DType::bfloat16 || value == DType::float16);
}

/// "exp_avg is rounded from float32 to bfloat16", for each state of which that is so.
std::vector<std::string> roundings(const Manifest& manifest, const ModelPart& part) {
  std::vector<std::string> lines;
  const std::vector<StateSlice> slices = state_slices(part);
  for (const auto& [state, dtype] : manifest.states) {
    const auto slice = std::ranges::find(slices, state, &StateSlice::state);
    if (slice != slices.end() && !fits(dtype, slice->dtype))
      lines.push_back(fmt::format("{} is rounded from {} to {}", state, name_of(dtype), name_of(slice->dtype)));
  }
  return lines;
}

/// Collective: the attempt of rank 0, and an Error unless all ranks chose the same checkpoint as rank 0.
std::int64_t agreed_attempt(const RunStartContext& context, Comm& all) {
  const std::vector<ResumeCandidate>& candidates = context.resume.candidates();
  const Manifest* newest = candidates.empty() ? nullptr : &candidates.front().reader->manifest();
  struct Choice {
    std::int64_t attempt = 0, num_candidates = 0, from_attempt = 0, from_step = 0;
  };
  const Choice own = {context.attempt, std::ssize(candidates), newest == nullptr ? 0 : newest->attempt,
                      newest == nullptr ? 0 : newest->scalars.step};
  Choice first = own;
  all.broadcast({&first, DType::int32, {sizeof(Choice) / sizeof(std::int32_t)}}, 0).wait();
  const auto difference = agreed_failure(all, [&] {
    require(
        own.num_candidates == first.num_candidates && own.from_attempt == first.from_attempt &&
            own.from_step == first.from_step,
        "this rank sees {} checkpoints in output.dir = '{}' and rank 0 sees {}; is it the same folder on all hosts?",
        own.num_candidates, context.config.output.dir, first.num_candidates);
  });
  if (difference) throw_agreed(all, *difference);
  return first.attempt;
}

void load_initial(const RunStartContext& context, const RankView& rank) {
  RankModel& model = rank.run.model();
  const std::int64_t seed = context.config.training.seed;
  if (context.initial == nullptr) {
    model.initialize(seed, rank.ops, context.num_threads);
  } else {
    model.load(*context.initial, rank.ops);
    model.initialize_adapters(seed, rank.ops);
  }
  if (context.adapters != nullptr) model.load_adapters(*context.adapters, rank.ops);
}

/// Of rank 0, with `fill` at its end so that it is whole words.
std::string text_of_rank_0(std::string text, char fill, Comm& all) {
  constexpr std::size_t word = sizeof(std::int32_t);
  text.resize((text.size() + word - 1) / word * word, fill);
  std::int64_t num_words = std::ssize(text) / static_cast<std::int64_t>(word);
  all.broadcast({&num_words, DType::int32, {sizeof(num_words) / word}}, 0).wait();
  text.resize(static_cast<std::size_t>(num_words) * word);
  all.broadcast({text.data(), DType::int32, {num_words}}, 0).wait();
  return text;
}

/// Data is known by its content.
constexpr std::array<std::string_view, 3> keys_of_a_rank = {"data.path", "training.num_threads", "comm.bind"};

std::string differences(const RunConfig& first, const RunConfig& own) {
  std::string text;
  for (const KeyChange& each : config_changes(first, own))
    if (std::ranges::find(keys_of_a_rank, each.key) == keys_of_a_rank.end())
      text += fmt::format("{}{} is {} here and {} on rank 0", text.empty() ? "" : "; ", each.key, each.is, each.was);
  return text;
}

}  // namespace

void require_same_run(const RunConfig& config, const NamedData& data, Comm& all) {
  const std::string first_config = text_of_rank_0(to_toml(config), '\n', all), own_data = to_text(data.fingerprint);
  std::string first_data = text_of_rank_0(own_data, ' ', all);
  first_data.erase(first_data.find_last_not_of(' ') + 1);
  const auto failure = agreed_failure(all, [&] {
    Manifest first;
    first.config = first_config;
    const std::string text = differences(config_of(first, "rank 0"), config);
    require(text.empty(), "{} (give all processes of a run the same config)", text);
    require(first_data == own_data, "{} = '{}' has {} here and {} on rank 0 (copy the same files to all hosts)",
            data.key, data.path, own_data, first_data);
  });
  if (failure) throw_agreed(all, *failure);
}

std::string start_line(const Resume& resume, std::size_t candidate) {
  if (resume.candidates().empty()) return "starting";
  const ResumeCandidate& from = resume.candidates()[candidate];
  return fmt::format("resuming from step {} of {}", from.scalars().step, from.reader->folder().string());
}

RunStart start_run(const RunStartContext& context, const RankView& rank, Mesh& host) {
  Comm& all = host.comm(step_group);
  const bool tells = host.rank() == 0;
  RunStart start;
  start.attempt = agreed_attempt(context, all);
  start.damaged = context.resume.damaged();
  const std::vector<ResumeCandidate>& candidates = context.resume.candidates();
  if (candidates.empty()) {
    load_initial(context, rank);
    start.scalars.seq_len = context.config.training.seq_len;
    start.scalars.data = context.resume.data();
    start.lineage = {{.attempt = start.attempt, .from = context.config.checkpoint.initial_load_path}};
    return start;
  }
  if (context.config.lora.exists()) load_initial(context, rank);  // checkpoints have no base
  ModelPart& part = rank.run.model().part();
  const LoadedStates states = {.moments = !context.config.checkpoint.exclude_from_loading.optimizer};
  for (std::size_t i = 0;; ++i) {
    const ResumeCandidate& from = candidates[i];
    const auto failure =
        agreed_failure(all, [&] { load_state(part, *from.reader, states, rank.ops, rank.mesh, host); });
    if (failure) {
      const std::int64_t step = from.scalars().step;
      if (!context.resume.may_pass_over() || i + 1 == candidates.size()) throw_agreed(all, *failure);
      if (tells) context.observer.warned(passing_over(step, failure->sentence));
      if (tells) context.observer.described(start_line(context.resume, i + 1));
      start.damaged.push_back(step);
      continue;
    }
    start.scalars = context.resume.scalars_of(from);
    rank.run.model().set_routers(start.scalars.routers, rank.ops);
    start.resumed_from = from.reader->folder();
    start.lineage = from.reader->manifest().lineage;
    start.lineage.push_back({start.attempt, start.resumed_from.string(), from.changes});
    if (tells) {
      for (const std::string& change : from.changes) context.observer.described(change);
      for (const std::string& line : roundings(from.reader->manifest(), part)) context.observer.described(line);
      context.observer.resumed(from.scalars().step, start.resumed_from);
    }
    return start;
  }
}

}  // namespace echelon
