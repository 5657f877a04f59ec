// Little-endian numbers to and from bytes, for the .forge format.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace forge {

static_assert(std::endian::native == std::endian::little, ".forge is read and written as little-endian");

class ByteWriter {
  public:
    template <typename T>
    void number(T value) {
        out_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    }
    void raw(std::string_view text) { out_ += text; }
    void raw(std::span<const std::byte> bytes) { out_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()); }
    void pad_to(std::size_t multiple) { out_.resize((out_.size() + multiple - 1) / multiple * multiple, '\0'); }
    std::size_t size() const { return out_.size(); }
    std::string take() { return std::move(out_); }

  private:
    std::string out_;
};

class ByteReader {
  public:
    ByteReader(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

    std::size_t left() const { return bytes_.size() - at_; }
    std::size_t position() const { return at_; }

    std::span<const std::byte> raw(std::uint64_t count, std::string_view what) {
        if (count > left())
            fail("{}: the data ends in {}, at byte {}: {} more bytes were expected, {} are left; it is truncated or damaged", source_, what, at_, count, left());
        const auto out = bytes_.subspan(at_, static_cast<std::size_t>(count));
        at_ += static_cast<std::size_t>(count);
        return out;
    }
    template <typename T>
    T number(std::string_view what) {
        T value;
        std::memcpy(&value, raw(sizeof(T), what).data(), sizeof(T));
        return value;
    }
    std::string_view text(std::uint64_t count, std::string_view what) {
        const auto bytes = raw(count, what);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    // A count of things that take at least `least` bytes each.
    std::size_t count(std::uint64_t value, std::size_t least, std::string_view what) const {
        if (value > left() / least) fail("{}: {} are said to be {}, but only {} bytes are left; it is truncated or damaged", source_, what, value, left());
        return static_cast<std::size_t>(value);
    }
    void finished() const {
        if (left() != 0) fail("{}: {} bytes follow where the data should end", source_, left());
    }

  private:
    std::span<const std::byte> bytes_;
    const std::string& source_;
    std::size_t at_ = 0;
};

}  // namespace forge
