// Reads protobuf's encoding, of which SentencePiece's models are: fields by their tags, without a schema.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace echelon {

struct ProtobufField {
  std::uint64_t number, value;  // value: of a varint, or the bits of a float
  std::string_view bytes;       // of a string or a message
};

/// The fields of a message. Throws Error, starting with `name`, if it is cut off or none.
class ProtobufMessage {
 public:
  ProtobufMessage(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  bool next(ProtobufField& field) {
    if (bytes_.empty()) return false;
    const std::uint64_t key = varint();
    field = {key >> 3, 0, {}};
    switch (key & 7) {
      case 0: field.value = varint(); break;
      case 1: (void)take(8); break;
      case 2: field.bytes = take(varint()); break;
      case 5: {
        std::uint32_t bits = 0;
        std::memcpy(&bits, take(4).data(), sizeof(bits));
        field.value = bits;
        break;
      }
      default: throw Error(fmt::format("{} is not a model of SentencePiece: wire type {}", name_, key & 7));
    }
    return true;
  }

 private:
  std::string_view take(std::uint64_t count) {
    require(count <= bytes_.size(), "{} is not a model of SentencePiece, or is cut off: {} bytes are missing", name_,
            count - bytes_.size());
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw Error(fmt::format("{} is not a model of SentencePiece: a number has more than 64 bits", name_));
  }
  std::string_view bytes_;
  const std::string& name_;
};

}  // namespace echelon
