#include "train/export_model.h"

#include "spec/groups.h"

namespace echelon {

std::optional<SharedFailure> export_model(const std::filesystem::path& folder, const RunConfig& config,
                                          std::int64_t step, RankRun& run, Ops& ops, Mesh& mesh, Mesh& host) {
  Comm& all = host.comm(step_group);
  const bool is_writer = all.rank() == 0;
  ModelWriter writer({.folder = folder,
                      .model = config.model,
                      .dtype = run.model().part().options.dtype,
                      .tokenizer = config.checkpoint.tokenizer,
                      .source = config.checkpoint.initial_load_path,
                      .training = {.seq_len = config.training.seq_len, .steps = step}});
  std::optional<SharedFailure> failure = agreed_failure(all, [&] {
    if (is_writer) writer.begin();
  });
  if (!failure) failure = agreed_failure(all, [&] { run.model().save(writer, ops, mesh); });
  if (!failure)
    failure = agreed_failure(all, [&] {
      if (is_writer) writer.finish();
    });
  return failure;
}

}  // namespace echelon
