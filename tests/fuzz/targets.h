// What a crafted file may reach. Each function takes any bytes, and returns whatever they are: what the program does
// with them ends in an Error or in a result. libFuzzer makes the bytes in the preset `fuzz`, and a test replays the
// corpus in every other one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace echelon::fuzz {

/// The text of a manifest without its digest, which it gets; or, if it begins with no '{', the config in one.
int manifest(const std::uint8_t* data, std::size_t size);

/// A state file: the JSON of its header, a line "%", and its data. Digests and the manifest are made for it; with "!"
/// before it the header is taken as it is.
int state_file(const std::uint8_t* data, std::size_t size);

/// A Hugging Face folder: config.json, a line "%", the JSON of the header of model.safetensors, a line "%", its data,
/// and after another line "%" an index, with which the file is called a.safetensors. With "!" before the header, the
/// file is what follows.
int model_folder(const std::uint8_t* data, std::size_t size);

/// A chat template, a line "%", and the JSON of its messages.
int chat_template(const std::uint8_t* data, std::size_t size);

/// A line of a .jsonl of chats, in any of its formats.
int chat_line(const std::uint8_t* data, std::size_t size);

/// A line of a .jsonl of texts.
int text_line(const std::uint8_t* data, std::size_t size);

/// The files next to a tokenizer: tokenizer_config.json, a line "%", special_tokens_map.json, a line "%", config.json.
int tokenizer_folder(const std::uint8_t* data, std::size_t size);

/// The .idx of tokens, a line "%", their .bin, and after another line "%" a .mask.
int dataset(const std::uint8_t* data, std::size_t size);

/// The first letter says which file of a tokenizer follows: s is SentencePiece's, r ranks, v vocab.json with merges.txt
/// after a line "%", any other tokenizer.json. Text is encoded with what is read.
int tokenizer(const std::uint8_t* data, std::size_t size);

/// adapter_config.json, a line "%", the JSON of the header of adapter_model.safetensors, a line "%", and its data; with
/// "!" before the header, the file is what follows.
int adapter(const std::uint8_t* data, std::size_t size);

}  // namespace echelon::fuzz
