// The little of Protocol Buffers' wire format that a SentencePiece model needs.
// Every read is checked against the end of the message.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace forge {

class ProtobufReader {
  public:
    ProtobufReader(std::string_view message, std::string_view where) : rest_(message), where_(where) {}

    // Advances to the next field; false at the end of the message.
    bool next() {
        if (rest_.empty()) return false;
        std::uint64_t tag = varint();
        field_ = static_cast<std::uint32_t>(tag >> 3);
        switch (tag & 7) {
            case 0:
                number_ = varint();
                break;
            case 1:
                bytes_ = take(8);
                break;
            case 2:
                bytes_ = take(varint());
                break;
            case 5:
                bytes_ = take(4);
                break;
            default:
                broken("a field of an unknown wire type");
        }
        wire_ = static_cast<unsigned>(tag & 7);
        if (field_ == 0) broken("a field with number 0");
        return true;
    }
    std::uint32_t field() const { return field_; }

    std::uint64_t number() const { return wire_ == 0 ? number_ : wrong(); }
    std::string_view bytes() const { return wire_ == 2 ? bytes_ : (wrong(), bytes_); }
    float float32() const {
        if (wire_ != 5) wrong();
        std::uint32_t bits = 0;
        for (int i = 3; i >= 0; --i)
            bits = bits << 8 | static_cast<unsigned char>(bytes_[static_cast<std::size_t>(i)]);
        return std::bit_cast<float>(bits);
    }

  private:
    [[noreturn]] void broken(std::string_view what) const {
        fail("{} is not a SentencePiece model: it holds {} where a protocol buffer goes on.", where_, what);
    }
    [[noreturn]] std::uint64_t wrong() const { broken("a field of the wrong type"); }
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            if (rest_.empty()) broken("a number that is cut off");
            auto byte = static_cast<unsigned char>(rest_.front());
            rest_.remove_prefix(1);
            value |= std::uint64_t{byte & 0x7Fu} << shift;
            if (byte < 0x80) return value;
        }
        broken("a number of more than 64 bits");
    }
    std::string_view take(std::uint64_t size) {
        if (size > rest_.size()) broken("a field that is cut off");
        std::string_view out = rest_.substr(0, static_cast<std::size_t>(size));
        rest_.remove_prefix(static_cast<std::size_t>(size));
        return out;
    }

    std::string_view rest_, where_;
    std::uint32_t field_ = 0;
    unsigned wire_ = 0;
    std::uint64_t number_ = 0;
    std::string_view bytes_;
};

}  // namespace forge
