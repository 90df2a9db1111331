#include "predict/saving/predicted_save.h"

#include "base/text/written_number.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using Json = nlohmann::ordered_json;

Json number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json to_json(const PredictedSnapshot& snapshot) {
  return {{"bytes", snapshot.num_bytes},
          {"predicted_step_seconds", snapshot.step_seconds},
          {"predicted_longer_seconds", snapshot.longer_seconds},
          {"predicted_waiting_seconds", number(snapshot.waiting_seconds)},
          {"predicted_writer_core_seconds", number(snapshot.writer_core_seconds)}};
}

std::string seconds_of(const PredictedSnapshot& snapshot) {
  std::string text = fmt::format("the step that takes its snapshot needs {:.4g} s, {:.4g} s more than others",
                                 snapshot.step_seconds, snapshot.longer_seconds);
  if (snapshot.waiting_seconds.value_or(0) > 0)
    text += fmt::format(", of which updates wait {:.4g} s for the disk", *snapshot.waiting_seconds);
  if (snapshot.writer_core_seconds)
    text += fmt::format("; a core writes it in {:.4g} s", *snapshot.writer_core_seconds);
  return text;
}

}  // namespace

std::string seconds_text(const PredictedSave& save) {
  std::string text;
  if (save.save_seconds) text = fmt::format("a checkpoint is saved in {:.4g} s", *save.save_seconds);
  if (save.save_seconds && save.load_seconds) text += fmt::format(" and loaded in {:.4g} s", *save.load_seconds);
  if (save.snapshot) text += (text.empty() ? "" : "; ") + seconds_of(*save.snapshot);
  return text;
}

std::string to_text(const PredictedSave& save) {
  std::string text = fmt::format("checkpoint: {} in {} file{}, at most {} of a rank; manifest: at most {}",
                                 written_bytes(save.num_bytes), save.num_files, save.num_files == 1 ? "" : "s",
                                 written_bytes(save.largest_file_bytes), written_bytes(save.most_manifest_bytes));
  if (save.snapshot) text += fmt::format("; snapshot: at most {} of a rank", written_bytes(save.snapshot->num_bytes));
  if (const std::string seconds = seconds_text(save); !seconds.empty()) text += "\n  " + seconds;
  return text + "\n";
}

Json to_json(const PredictedSave& save) {
  Json json = {{"files", save.num_files},
               {"bytes", save.num_bytes},
               {"largest_file_bytes", save.largest_file_bytes},
               {"most_manifest_bytes", save.most_manifest_bytes},
               {"predicted_save_seconds", number(save.save_seconds)},
               {"predicted_load_seconds", number(save.load_seconds)}};
  if (save.snapshot) json["snapshot"] = to_json(*save.snapshot);
  return json;
}

}  // namespace echelon
