#include "data/prepare.h"

#include "base/error.h"
#include "base/text/printable.h"
#include "data/chat/chat_preparation.h"
#include "data/files/output_claim.h"
#include "data/indexed_dataset.h"
#include "data/prepare_record.h"
#include "data/prepared_tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

namespace echelon {
namespace {

namespace fs = std::filesystem;

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const Corpus& corpus, const PrepareProgress& progress)
      : options_(options),
        model_vocab_size_(options.tokenizer.empty() ? std::nullopt : model_vocab_size(options.tokenizer)),
        corpus_(corpus),
        progress_(progress) {}

  PrepareResult run() {
    const Tokenizer tokenizer = prepared_tokenizer(options_, corpus_, progress_);
    PrepareResult result = encode(tokenizer);
    result.vocab_size = tokenizer.vocab_size();
    if (result.validation.num_tokens > 0)
      result.validation_entropy = unigram_entropy(IndexedDataset(path("validation")));
    return result;
  }

 private:
  [[nodiscard]] std::string path(std::string_view name) const { return fmt::format("{}/{}", options_.output, name); }

  // Old files are deleted first: files of two requests must not coexist, even if this is interrupted.
  void publish(const Tokenizer& tokenizer, SplitWriter& writer) const {
    std::error_code error;
    for (const char* stale : {"prepare.json", "train.idx", "train.bin", "train.mask", "validation.idx",
                              "validation.bin", "validation.mask"})
      fs::remove(path(stale), error);
    publish_tokenizer(options_, tokenizer);
    writer.publish();
  }

  PrepareResult encode(const Tokenizer& tokenizer) const {
    SplitWriter writer(options_.output, tokenizer, frame_of(options_, tokenizer),
                       {.parses_control = options_.parses_special, .num_threads = num_threads_of(options_)});
    PrepareResult result;
    result.num_files = static_cast<std::int64_t>(corpus_.files().size());
    std::optional<ChatPreparation> chats;
    if (options_.chat.is_on) chats.emplace(options_, tokenizer, writer, result);
    try {
      result.num_skipped_files = add_documents([&](const CorpusDocument& document) {
        chats ? chats->add(document) : writer.add(document.split, document.text);
        require_in_model(tokenizer, writer);
      });
    } catch (const Error& error) {
      // What is wrong with a line that waits comes before what is wrong with the next file.
      if (chats && error.status() == ExitStatus::bad_input) chats->flush();
      throw;
    }
    if (chats) chats->flush();
    writer.flush();
    require_in_model(tokenizer, writer);
    result.num_control_as_text = writer.num_control_as_text();
    result.train = writer.counts(Split::train);
    result.validation = writer.counts(Split::validation);
    if (result.train.num_tokens == 0) throw corpus_.no_text("for training");
    require(result.validation.num_tokens > 0 || options_.corpus.validation_fraction == 0,
            "prepare --validation-fraction={} leaves no document of {} for validation; use more text, a larger "
            "fraction or 0",
            options_.corpus.validation_fraction, result.train.num_documents);
    publish(tokenizer, writer);
    return result;
  }

  /// Returns the number of files that are not text.
  std::int64_t add_documents(const Corpus::Visit& add) const {
    const std::int64_t total = corpus_.num_bytes();
    std::int64_t done_files = 0, num_skipped = 0;
    for (const CorpusFile& file : corpus_.files()) {
      std::int64_t done = done_files;
      const bool is_text = corpus_.for_each_document(file, file.num_bytes, [&](const CorpusDocument& document) {
        add(document);
        done += static_cast<std::int64_t>(document.text.size());
        if (progress_) progress_(PrepareStage::encoding, std::min(done, total), total);
      });
      num_skipped += is_text ? 0 : 1;
      done_files += file.num_bytes;
    }
    return num_skipped;
  }

  /// A token that the model has no embedding for would end its training.
  void require_in_model(const Tokenizer& tokenizer, const SplitWriter& writer) const {
    const std::int32_t id = writer.largest_id();
    if (!model_vocab_size_ || id < *model_vocab_size_) return;
    throw Error(
        fmt::format("prepare --tokenizer={}: the text has token {} ({}), but vocab_size = {} in the config.json next "
                    "to it (use the "
                    "tokenizer of that model, or a copy in another folder)",
                    options_.tokenizer, id, printable(tokenizer.bytes(id), 40), *model_vocab_size_));
  }

  const PrepareOptions& options_;
  const std::optional<std::int64_t> model_vocab_size_;
  const Corpus& corpus_;
  const PrepareProgress& progress_;
};

// Fail early: minutes of training should not end at a folder that cannot be written.
void require_writable(const std::string& output) {
  fs::path there = fs::absolute(output);
  std::error_code error;
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, error))
    throw Error(fmt::format("prepare --output={} cannot be made: {} is not a folder", output, there.string()));
  if (access(there.c_str(), W_OK | X_OK) != 0)
    throw Error(
        fmt::format("prepare --output={} cannot be written: {}: {}", output, there.string(), std::strerror(errno)));
}

}  // namespace

int num_threads_of(const PrepareOptions& options) {
  const int cores = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  return options.num_threads > 0 ? options.num_threads : cores;
}

PrepareResult prepare(const PrepareOptions& options, const PrepareProgress& progress) {
  require(!options.output.empty(), "prepare --output is missing: name a folder");
  require(options.training_sample_bytes > 0, "prepare --training-sample-bytes={} is not above 0",
          options.training_sample_bytes);
  require(options.num_threads >= 0, "prepare --threads={} is negative; 0 takes one for each core", options.num_threads);
  require_learnable(options);
  require(!options.chat.is_on || !options.tokenizer.empty(), "prepare --chat needs --tokenizer, of the model");
  CorpusOptions text = options.corpus;
  text.not_below = options.output;
  text.takes_lines = options.chat.is_on;
  const Corpus corpus(text);
  const std::string hash = request_hash(options, corpus);
  if (const auto recorded = read_prepare_record(options, hash)) return *recorded;
  require_writable(options.output);
  const OutputClaim claim(options.output);
  const PrepareResult result = Preparation(options, corpus, progress).run();
  write_prepare_record(options, hash, result);
  return result;
}

}  // namespace echelon
