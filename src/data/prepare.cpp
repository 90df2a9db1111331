#include "data/prepare.h"

#include "base/error.h"
#include "data/files/durable_file.h"
#include "data/files/mapped_file.h"
#include "data/indexed_dataset.h"
#include "data/prepare_record.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/encoder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

namespace echelon {
namespace {

namespace fs = std::filesystem;

/// Writes one split.
class SplitWriter {
 public:
  SplitWriter(const std::string& prefix, const Tokenizer& tokenizer)
      : dataset_(prefix, token_type_for(tokenizer.vocab_size())), encoder_(tokenizer) {}

  void add(std::string_view document, std::optional<std::int32_t> end_of_document) {
    ids_.clear();
    encoder_.append(document, ids_);
    if (end_of_document) ids_.push_back(*end_of_document);
    dataset_.add_document(ids_);
    num_bytes_ += static_cast<std::int64_t>(document.size());
  }

  void publish() { dataset_.publish(); }
  [[nodiscard]] SplitCounts counts() const { return {dataset_.num_documents(), num_bytes_, dataset_.num_tokens()}; }

 private:
  IndexedDatasetWriter dataset_;
  Encoder encoder_;
  std::vector<std::int32_t> ids_;
  std::int64_t num_bytes_ = 0;
};

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const Corpus& corpus, const PrepareProgress& progress)
      : options_(options), corpus_(corpus), progress_(progress) {}

  PrepareResult run() {
    const bool is_given = !options_.tokenizer.empty();
    const Tokenizer tokenizer = is_given ? Tokenizer::load(options_.tokenizer) : train_tokenizer();
    make_output();  // not earlier: a bad request must not delete an older output
    PrepareResult result = encode(tokenizer);
    result.vocab_size = tokenizer.vocab_size();
    if (result.validation.num_tokens > 0)
      result.validation_entropy = unigram_entropy(IndexedDataset(path("validation")));
    return result;
  }

 private:
  [[nodiscard]] std::string path(std::string_view name) const { return fmt::format("{}/{}", options_.output, name); }

  void make_output() const {
    std::error_code error;
    fs::create_directories(options_.output, error);
    if (error) throw Failure(fmt::format("prepare --output={} cannot be made: {}", options_.output, error.message()));
  }

  // Old files are deleted first: files of two requests must not coexist, even if this is interrupted.
  void publish(const Tokenizer& tokenizer, SplitWriter& train, SplitWriter& validation) const {
    std::error_code error;
    for (const char* stale : {"prepare.json", "train.idx", "train.bin", "validation.idx", "validation.bin"})
      fs::remove(path(stale), error);
    options_.tokenizer.empty() ? tokenizer.save(path("tokenizer.json")) : copy_tokenizer();
    train.publish();
    if (validation.counts().num_tokens > 0) validation.publish();
  }

  Tokenizer train_tokenizer() const {
    std::vector<const CorpusFile*> drawn;
    for (const CorpusFile& file : corpus_.files()) drawn.push_back(&file);
    std::stable_sort(drawn.begin(), drawn.end(),
                     [](const CorpusFile* a, const CorpusFile* b) { return a->draw < b->draw; });
    BpeTrainer trainer;
    std::int64_t done = 0;
    const std::int64_t total = std::min(corpus_.num_bytes(), options_.training_sample_bytes);
    for (const CorpusFile* file : drawn) {
      if (done >= options_.training_sample_bytes) break;
      corpus_.for_each_document(*file, options_.training_sample_bytes - done,
                                [&](Split split, std::string_view document) {
                                  if (split == Split::validation) return;
                                  trainer.add(document);
                                  done += static_cast<std::int64_t>(document.size());
                                  if (progress_)
                                    progress_(PrepareStage::training_tokenizer, std::min(done, total), total);
                                });
    }
    require(done > 0, "prepare --input={}: there is no text to train a tokenizer on",
            fmt::join(options_.corpus.inputs, ", "));
    return Tokenizer(trainer.train(options_.vocab_size));
  }

  // Copied byte for byte, including fields that the reader ignores.
  void copy_tokenizer() const {
    const std::string bytes(MappedFile(options_.tokenizer).bytes());
    write_durably(path("tokenizer.json"), bytes);
  }

  PrepareResult encode(const Tokenizer& tokenizer) const {
    const auto separator = options_.appends_end_of_document ? tokenizer.end_of_document() : std::nullopt;
    require(separator || !options_.appends_end_of_document,
            "{} has none of the separators <|endoftext|>, <|end_of_text|> and </s>; add --no-separator",
            options_.tokenizer);
    SplitWriter train(path("train"), tokenizer);
    SplitWriter validation(path("validation"), tokenizer);
    PrepareResult result;
    result.num_files = static_cast<std::int64_t>(corpus_.files().size());
    const std::int64_t total = corpus_.num_bytes();
    std::int64_t done_files = 0;
    for (const CorpusFile& file : corpus_.files()) {
      std::int64_t done = done_files;
      const bool is_text = corpus_.for_each_document(file, file.num_bytes, [&](Split split, std::string_view document) {
        (split == Split::train ? train : validation).add(document, separator);
        done += static_cast<std::int64_t>(document.size());
        if (progress_) progress_(PrepareStage::encoding, std::min(done, total), total);
      });
      result.num_skipped_files += is_text ? 0 : 1;
      done_files += file.num_bytes;
    }
    result.train = train.counts();
    result.validation = validation.counts();
    require(result.train.num_tokens > 0, "prepare --input={}: there is no text for training",
            fmt::join(options_.corpus.inputs, ", "));
    require(result.validation.num_tokens > 0 || options_.corpus.validation_fraction == 0,
            "prepare --validation-fraction={} leaves no document of {} for validation; use more text, a larger "
            "fraction or 0",
            options_.corpus.validation_fraction, result.train.num_documents);
    publish(tokenizer, train, validation);
    return result;
  }

  const PrepareOptions& options_;
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

void require_vocab_size(const PrepareOptions& options) {
  if (!options.tokenizer.empty()) return;
  constexpr std::int64_t least = 257, most = 1 << 24;
  require(options.vocab_size >= least && options.vocab_size <= most,
          "prepare --vocab-size={} is not in [{}, {}]: 256 bytes, the document separator and the merges (use {})",
          options.vocab_size, least, most, std::clamp(options.vocab_size, least, most));
}

}  // namespace

PrepareResult prepare(const PrepareOptions& options, const PrepareProgress& progress) {
  require(!options.output.empty(), "prepare --output is missing: name a folder");
  require(options.training_sample_bytes > 0, "prepare --training-sample-bytes={} is not above 0",
          options.training_sample_bytes);
  require_vocab_size(options);
  CorpusOptions text = options.corpus;
  text.not_below = options.output;
  const Corpus corpus(text);
  const std::string hash = request_hash(options, corpus);
  if (const auto recorded = read_prepare_record(options, hash)) return *recorded;
  require_writable(options.output);
  const PrepareResult result = Preparation(options, corpus, progress).run();
  write_prepare_record(options, hash, result);
  return result;
}

}  // namespace echelon
