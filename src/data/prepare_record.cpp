#include "data/prepare_record.h"

#include "base/error.h"
#include "data/files/durable_file.h"
#include "data/files/mapped_file.h"
#include "data/indexed_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

#include <xxhash.h>

#include <filesystem>

#include <nlohmann/json.hpp>

namespace echelon {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int record_version = 4;  // increased when the same request would give different tokens

OrderedJson counts_json(const SplitCounts& counts) {
  return {{"num_documents", counts.num_documents}, {"num_bytes", counts.num_bytes}, {"num_tokens", counts.num_tokens}};
}

SplitCounts read_counts(const OrderedJson& json) {
  return {.num_documents = json.at("num_documents"),
          .num_bytes = json.at("num_bytes"),
          .num_tokens = json.at("num_tokens")};
}

/// Throws if a file of the record is missing, corrupt or changed.
void check_files(const PrepareOptions& options, const PrepareResult& result) {
  require(Tokenizer::load(options.output + "/tokenizer.json").vocab_size() == result.vocab_size, "another tokenizer");
  require(IndexedDataset(options.output + "/train").num_tokens() == result.train.num_tokens, "other training tokens");
  if (result.validation.num_tokens == 0) return;
  require(IndexedDataset(options.output + "/validation").num_tokens() == result.validation.num_tokens,
          "other validation tokens");
}

/// What decides the tokens of a given tokenizer.
OrderedJson tokenizer_json(const PrepareOptions& options) {
  const std::string& path = options.tokenizer;
  OrderedJson files = {MappedFile(path).bytes(), named_token(path, "eos_token").value_or("")};
  const std::filesystem::path file(path);
  if (file.filename() == "vocab.json") files.push_back(MappedFile(file.parent_path() / "merges.txt").bytes());
  return files;
}

OrderedJson chat_json(const PrepareOptions& options) {
  const ChatOptions& chat = options.chat;
  if (!chat.is_on) return nullptr;
  const ChatTemplates templates = chat_templates_of(options.tokenizer, chat.template_name);
  return {templates.main, templates.tool_use, named_tokens(options.tokenizer),
          chat.train_on,  chat.max_tokens,    chat.too_long};
}

}  // namespace

std::string request_hash(const PrepareOptions& options, const Corpus& corpus) {
  OrderedJson files = OrderedJson::array();
  for (const CorpusFile& file : corpus.files())
    files.push_back({file.path, file.name, file.num_bytes, file.modified_nanos});
  const CorpusOptions& text = options.corpus;
  const OrderedJson request = {
      record_version,
      text.text_key,
      text.max_bytes,
      text.validation_fraction,
      text.seed,
      options.tokenizer.empty() ? OrderedJson{options.vocab_size, options.min_frequency} : tokenizer_json(options),
      options.training_sample_bytes,
      options.appends_end_of_document,
      options.pattern,
      options.separator,
      options.adds_template,
      options.parses_special,
      chat_json(options),
      files};
  const std::string bytes = request.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::optional<PrepareResult> read_prepare_record(const PrepareOptions& options, const std::string& hash) {
  try {
    const MappedFile file(options.output + "/prepare.json");
    const OrderedJson json = OrderedJson::parse(file.bytes());
    if (json.at("request") != hash) return std::nullopt;
    PrepareResult result;
    result.is_reused = true;
    result.vocab_size = json.at("vocab_size");
    result.num_files = json.at("num_files");
    result.num_skipped_files = json.at("num_skipped_files");
    result.num_control_as_text = json.at("num_control_as_text");
    result.num_too_long = json.at("num_too_long");
    result.num_untrained = json.at("num_untrained");
    result.chat_format = json.at("chat_format");
    result.train = read_counts(json.at("train"));
    result.validation = read_counts(json.at("validation"));
    result.validation_entropy = json.at("validation_unigram_entropy");
    check_files(options, result);
    return result;
  } catch (const Error&) {  // no record, or files that do not match it: prepare again
  } catch (const nlohmann::json::exception&) {
  }
  return std::nullopt;
}

void write_prepare_record(const PrepareOptions& options, const std::string& hash, const PrepareResult& result) {
  const CorpusOptions& text = options.corpus;
  const OrderedJson json = {{"request", hash},
                            {"inputs", text.inputs},
                            {"globs", text.globs},
                            {"text_key", text.text_key},
                            {"max_bytes", text.max_bytes},
                            {"validation_fraction", text.validation_fraction},
                            {"seed", text.seed},
                            {"tokenizer", options.tokenizer},
                            {"training_sample_bytes", options.training_sample_bytes},
                            {"appends_end_of_document", options.appends_end_of_document},
                            {"separator", options.separator},
                            {"adds_template", options.adds_template},
                            {"parses_special", options.parses_special},
                            {"num_control_as_text", result.num_control_as_text},
                            {"num_too_long", result.num_too_long},
                            {"num_untrained", result.num_untrained},
                            {"chat_format", result.chat_format},
                            {"vocab_size", result.vocab_size},
                            {"num_files", result.num_files},
                            {"num_skipped_files", result.num_skipped_files},
                            {"train", counts_json(result.train)},
                            {"validation", counts_json(result.validation)},
                            {"validation_unigram_entropy", result.validation_entropy}};
  write_durably(options.output + "/prepare.json",
                json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

}  // namespace echelon
