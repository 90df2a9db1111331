#include "data/prepared_tokenizer.h"

#include "base/error.h"
#include "data/files/durable_file.h"
#include "data/files/mapped_file.h"
#include "data/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <filesystem>
#include <vector>

namespace echelon {
namespace {

namespace fs = std::filesystem;

Tokenizer train_tokenizer(const PrepareOptions& options, const Corpus& corpus, const PrepareProgress& progress) {
  std::vector<const CorpusFile*> drawn;
  for (const CorpusFile& file : corpus.files()) drawn.push_back(&file);
  std::stable_sort(drawn.begin(), drawn.end(),
                   [](const CorpusFile* a, const CorpusFile* b) { return a->draw < b->draw; });
  BpeTrainer trainer;
  std::int64_t done = 0;
  const std::int64_t total = std::min(corpus.num_bytes(), options.training_sample_bytes);
  for (const CorpusFile* file : drawn) {
    if (done >= options.training_sample_bytes) break;
    corpus.for_each_document(*file, options.training_sample_bytes - done, [&](const CorpusDocument& document) {
      if (document.split == Split::validation) return;
      trainer.add(document.text);
      done += static_cast<std::int64_t>(document.text.size());
      if (progress) progress(PrepareStage::training_tokenizer, std::min(done, total), total);
    });
  }
  if (done == 0) throw corpus.no_text("to train a tokenizer on");
  return Tokenizer(trainer.train(options.vocab_size, options.min_frequency));
}

void copy_durably(const fs::path& from, const fs::path& to) {
  write_durably(to.string(), std::string(MappedFile(from.string()).bytes()));
}

}  // namespace

void require_learnable(const PrepareOptions& options) {
  if (!options.tokenizer.empty()) return;
  constexpr std::int64_t least = 257, most = 1 << 24;
  require(options.vocab_size >= least && options.vocab_size <= most,
          "prepare --vocab-size={} is not in [{}, {}]: 256 bytes, the document separator and the merges (use {})",
          options.vocab_size, least, most, std::clamp(options.vocab_size, least, most));
  require(options.min_frequency >= 1, "prepare --min-frequency={} is not a count of pairs (use 1)",
          options.min_frequency);
}

Tokenizer prepared_tokenizer(const PrepareOptions& options, const Corpus& corpus, const PrepareProgress& progress) {
  return options.tokenizer.empty() ? train_tokenizer(options, corpus, progress)
                                   : Tokenizer::load(options.tokenizer, options.pattern);
}

DocumentFrame frame_of(const PrepareOptions& options, const Tokenizer& tokenizer) {
  if (options.chat.is_on) return {};
  if (options.adds_template) {
    const TokenizerSpec& spec = tokenizer.spec();
    require(!spec.before_text.empty() || !spec.after_text.empty(),
            "{} has no template with control tokens; leave out --template",
            options.tokenizer.empty() ? "the tokenizer that is learned" : options.tokenizer);
    return {spec.before_text, spec.after_text};
  }
  if (!options.appends_end_of_document) return {};
  if (!options.separator.empty()) {
    const auto named = tokenizer.added_token(options.separator);
    require(named.has_value(), "prepare --separator={} is not an added token of {}", options.separator,
            options.tokenizer.empty() ? "the tokenizer, which has <|endoftext|>" : options.tokenizer);
    return {{}, {*named}};
  }
  const auto separator = tokenizer.end_of_document();
  require(separator.has_value(),
          "{} does not say which token ends a sequence, and no tokenizer_config.json next to it does; name it with "
          "--separator, or add --no-separator",
          options.tokenizer);
  return {{}, {*separator}};
}

void publish_tokenizer(const PrepareOptions& options, const Tokenizer& tokenizer) {
  const bool is_given = !options.tokenizer.empty();
  const fs::path given(options.tokenizer), folder = given.parent_path(), output(options.output);
  for (const char* sibling : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path source = folder / sibling, copy = output / sibling;
    std::error_code error;
    if (is_given && fs::equivalent(source, copy, error)) continue;
    fs::remove(copy, error);
    if (is_given && fs::is_regular_file(source, error)) copy_durably(source, copy);
  }
  const fs::path written = output / "tokenizer.json";
  if (given.extension() == ".json" && given.filename() != "vocab.json")
    copy_durably(given, written);
  else
    tokenizer.save(written.string());
}

}  // namespace echelon
