#include "data/split_writer.h"

#include "data/share_out.h"

#include <algorithm>
#include <utility>

namespace echelon {
namespace {

constexpr std::size_t bytes_of_a_batch = std::size_t{8} << 20;
constexpr std::size_t most_documents = 1 << 16;

}  // namespace

SplitWriter::SplitWriter(const std::string& folder, const Tokenizer& tokenizer, DocumentFrame frame, Options options)
    : frame_(std::move(frame)),
      train_(folder + "/train", token_type_for(tokenizer.vocab_size())),
      validation_(folder + "/validation", token_type_for(tokenizer.vocab_size())),
      prefixes_{folder + "/train", folder + "/validation"} {
  for (int i = 0; i < std::max(options.num_threads, 1); ++i) encoders_.emplace_back(tokenizer, options.parses_control);
}

void SplitWriter::add(Split split, std::string_view document) {
  waiting_.push_back({split, std::string(document), {}});
  waiting_bytes_ += document.size();
  if (waiting_bytes_ >= bytes_of_a_batch || waiting_.size() >= most_documents) flush();
}

void SplitWriter::add_encoded(Split split, const EncodedChat& chat, std::int64_t num_bytes) {
  const int index = static_cast<int>(split);
  write(split, chat.ids);
  if (!masks_[index]) masks_[index].emplace(prefixes_[index]);
  masks_[index]->add(chat.is_trained);
  num_bytes_[index] += num_bytes;
}

void SplitWriter::encode(Encoder& encoder, Document& document) const {
  document.ids = frame_.before;
  encoder.append(document.text, document.ids);
  document.ids.insert(document.ids.end(), frame_.after.begin(), frame_.after.end());
}

void SplitWriter::write(Split split, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids) largest_id_ = std::max(largest_id_, id);
  (split == Split::train ? train_ : validation_).add_document(ids);
}

void SplitWriter::flush() {
  share_out(encoders_, waiting_.size(), [&](Encoder& encoder, std::size_t i) { encode(encoder, waiting_[i]); });
  for (const Document& document : waiting_) {
    write(document.split, document.ids);
    num_bytes_[static_cast<int>(document.split)] += static_cast<std::int64_t>(document.text.size());
  }
  waiting_.clear();
  waiting_bytes_ = 0;
}

void SplitWriter::publish() {
  // A mask comes first: no index may have its name without it.
  for (std::optional<LossMaskWriter>& mask : masks_)
    if (mask) mask->publish();
  train_.publish();
  if (validation_.num_tokens() > 0) validation_.publish();
}

SplitCounts SplitWriter::counts(Split split) const {
  const IndexedDatasetWriter& written = split == Split::train ? train_ : validation_;
  return {written.num_documents(), num_bytes_[static_cast<int>(split)], written.num_tokens()};
}

std::int64_t SplitWriter::num_control_as_text() const {
  std::int64_t sum = 0;
  for (const Encoder& encoder : encoders_) sum += encoder.num_control_as_text();
  return sum;
}

}  // namespace echelon
